package envbuild

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// pipSettings are pip's settings that decide where packages come from: name (as in a configuration file,
// "index-url") to value, of the files in pip's order and then of PIP_* variables.
type pipSettings map[string]string

// readPip reads pip's configuration without running it. prefix is that of the interpreter whose pip would be
// used ("" for none), environ its variables.
func readPip(environ []string, prefix string) pipSettings {
	settings := pipSettings{}
	for _, file := range pipFiles(environ, prefix) {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // pip, too, goes on without a file that it can not read
		}
		settings.overlay(string(content))
	}
	for _, line := range environ {
		name, value, found := strings.Cut(line, "=")
		key, isPip := strings.CutPrefix(strings.ToUpper(name), "PIP_")
		if !found || !isPip || key == "CONFIG_FILE" || value == "" {
			continue
		}
		settings[strings.ReplaceAll(strings.ToLower(key), "_", "-")] = value
	}
	return settings
}

// pipFiles lists pip's configuration files, the later ones winning.
func pipFiles(environ []string, prefix string) []string {
	get := func(name string) string { return environValue(environ, name) }
	named := get("PIP_CONFIG_FILE")
	if named == os.DevNull {
		return nil
	}
	home := get("HOME")
	var files []string
	switch runtime.GOOS {
	case "windows":
		home = get("USERPROFILE")
		if data := get("ProgramData"); data != "" {
			files = append(files, filepath.Join(data, "pip", "pip.ini"))
		}
		files = append(files, filepath.Join(home, "pip", "pip.ini"))
		if data := get("APPDATA"); data != "" {
			files = append(files, filepath.Join(data, "pip", "pip.ini"))
		}
		if prefix != "" {
			files = append(files, filepath.Join(prefix, "pip.ini"))
		}
	default:
		directories := get("XDG_CONFIG_DIRS")
		if runtime.GOOS == "darwin" {
			files = append(files, "/Library/Application Support/pip/pip.conf")
		} else {
			if directories == "" {
				directories = "/etc/xdg"
			}
			list := filepath.SplitList(directories)
			slices.Reverse(list) // the first named directory matters most
			for _, directory := range list {
				files = append(files, filepath.Join(directory, "pip", "pip.conf"))
			}
			files = append(files, "/etc/pip.conf")
		}
		files = append(files, filepath.Join(home, ".pip", "pip.conf"))
		config := get("XDG_CONFIG_HOME")
		if config == "" {
			config = filepath.Join(home, ".config")
		}
		if runtime.GOOS == "darwin" {
			files = append(files, filepath.Join(home, "Library", "Application Support", "pip", "pip.conf"))
		}
		files = append(files, filepath.Join(config, "pip", "pip.conf"))
		if prefix != "" {
			files = append(files, filepath.Join(prefix, "pip.conf"))
		}
	}
	if named != "" {
		files = append(files, named)
	}
	return files
}

// overlay applies one configuration file: what holds for every command, then what holds for installing.
func (s pipSettings) overlay(text string) {
	sections := map[string]map[string]string{}
	section, key := "", ""
	for line := range strings.Lines(text) {
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";"):
		case indented && key != "": // a value goes on in lines that are indented
			sections[section][key] = strings.TrimSpace(sections[section][key] + "\n" + line)
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section, key = strings.ToLower(line[1:len(line)-1]), ""
		default:
			end := strings.IndexAny(line, "=:")
			if end < 0 {
				key = ""
				continue
			}
			key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(line[:end])), "_", "-")
			if sections[section] == nil {
				sections[section] = map[string]string{}
			}
			sections[section][key] = strings.TrimSpace(line[end+1:])
		}
	}
	for _, name := range []string{"global", "install"} {
		for key, value := range sections[name] {
			s[key] = value
		}
	}
}

// list splits a value that may name several things, as pip does: at white space.
func (s pipSettings) list(key string) []string { return strings.Fields(s[key]) }

// truth reads a switch.
func (s pipSettings) truth(key string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(s[key]))
}

// variablesForUV are uv's variables that say what pip's settings say, for those of uv's own that are unset.
// directory is what relative find-links count from.
func (s pipSettings) variablesForUV(environ []string, directory string) []string {
	var variables []string
	unset := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return environValue(environ, name) != "" })
	}
	set := func(name, value string) {
		if value != "" && unset(name) {
			variables = append(variables, name+"="+value)
		}
	}
	if unset("UV_DEFAULT_INDEX", "UV_INDEX_URL") {
		set("UV_DEFAULT_INDEX", s["index-url"])
	}
	if unset("UV_INDEX", "UV_EXTRA_INDEX_URL") {
		set("UV_INDEX", strings.Join(s.list("extra-index-url"), " "))
	}
	if s.truth("no-index") {
		set("UV_NO_INDEX", "1")
	}
	var links []string
	for _, link := range s.list("find-links") {
		if !strings.Contains(link, "://") {
			path := link
			if rest, home := strings.CutPrefix(path, "~/"); home {
				path = filepath.Join(environValue(environ, "HOME"), rest)
			}
			if !filepath.IsAbs(path) {
				path = filepath.Join(directory, path)
			}
			if _, err := os.Stat(path); err != nil {
				continue // pip says a word about a folder that is missing; uv would stop
			}
			link = path
		}
		links = append(links, link)
	}
	set("UV_FIND_LINKS", strings.Join(links, ","))
	set("UV_INSECURE_HOST", strings.Join(s.list("trusted-host"), " "))
	if unset("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS") {
		set("SSL_CERT_FILE", s["cert"])
	}
	set("SSL_CLIENT_CERT", s["client-cert"])
	if proxy := s["proxy"]; proxy != "" && unset("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy") {
		set("HTTP_PROXY", proxy)
		set("HTTPS_PROXY", proxy)
	}
	set("UV_HTTP_TIMEOUT", cmp.Or(s["timeout"], s["default-timeout"]))
	if provider := s["keyring-provider"]; provider == "subprocess" {
		set("UV_KEYRING_PROVIDER", provider)
	}
	return variables
}
