package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// environ is an environment by name. On Windows, where case makes no difference, names are upper case.
type environ map[string]string

func newEnviron(list []string) environ {
	e := make(environ, len(list))
	for _, variable := range list {
		if name, value, ok := strings.Cut(variable, "="); ok && name != "" {
			if runtime.GOOS == "windows" {
				name = strings.ToUpper(name)
			}
			e[name] = value
		}
	}
	return e
}

func (e environ) get(name string) string { return strings.TrimSpace(e[name]) }

// places are the folders that settings default to.
type places struct {
	home, configuration, runtime, state, cache, environments string
}

// program is the name of our folder in the system's.
const program = "comfy-supervisor"

// folders works out the default places of this operating system from the environment given.
func (l *loader) folders() error {
	home := l.environ.get("HOME")
	if runtime.GOOS == "windows" {
		home = l.environ.get("USERPROFILE")
	}
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			home = ""
		}
	}
	l.place = defaultPlaces(runtime.GOOS, home, l.environ)
	if home == "" && !filepath.IsAbs(l.place.state) {
		return errors.New("finding the folders of settings and state: the home folder is unknown; set HOME, or COMFY_SUPERVISOR_STATE_DIR, COMFY_SUPERVISOR_CACHE_DIR and COMFY_ENV_ROOT")
	}
	return nil
}

// defaultPlaces are the customs of each operating system. XDG's variables count only when absolute, as its
// specification wants.
func defaultPlaces(system, home string, e environ) places {
	p := places{home: home}
	switch system {
	case "windows":
		local := localApplicationData(home, e)
		roaming := e.get("APPDATA")
		if roaming == "" || strings.Contains(strings.ToLower(roaming), "systemprofile") {
			roaming = filepath.Join(home, "AppData", "Roaming")
		}
		p.configuration = filepath.Join(roaming, program)
		p.state = filepath.Join(local, program)
		p.cache = filepath.Join(local, program, "cache")
		p.environments = filepath.Join(local, "Programs", "comfy-env")
	case "darwin":
		support := filepath.Join(home, "Library", "Application Support", program)
		p.configuration, p.state = support, support
		p.cache = filepath.Join(home, "Library", "Caches", program)
		p.environments = filepath.Join(home, ".ce")
	default:
		xdg := func(variable string, otherwise ...string) string {
			if folder := e.get(variable); filepath.IsAbs(folder) {
				return filepath.Join(folder, program)
			}
			return filepath.Join(append(append([]string{home}, otherwise...), program)...)
		}
		p.configuration = xdg("XDG_CONFIG_HOME", ".config")
		p.state = xdg("XDG_STATE_HOME", ".local", "state")
		p.cache = xdg("XDG_CACHE_HOME", ".cache")
		p.environments = filepath.Join(home, ".ce")
		if folder := e.get("XDG_RUNTIME_DIR"); filepath.IsAbs(folder) {
			p.runtime = filepath.Join(folder, program)
		}
	}
	return p
}

// localApplicationData is the real user's local folder. Under services and scheduled tasks LOCALAPPDATA is the
// system account's, where a second set of environments would be built.
func localApplicationData(home string, e environ) string {
	local := e.get("LOCALAPPDATA")
	if local != "" && !strings.Contains(strings.ToLower(local), "systemprofile") {
		return local
	}
	if home != "" && !strings.Contains(strings.ToLower(home), "systemprofile") {
		return filepath.Join(home, "AppData", "Local")
	}
	return local
}

// internalVariables begin like settings and are handed between our own processes.
var internalVariables = []string{
	"COMFY_SUPERVISOR_WORKER", "COMFY_SUPERVISOR_SETTINGS", "COMFY_SUPERVISOR_LAUNCHER", "COMFY_SUPERVISOR_LAUNCHER_KEY",
	"COMFY_SUPERVISOR_LAUNCHER_FOLDER", "COMFY_SUPERVISOR_LAUNCHER_VERSION", "COMFY_SUPERVISOR_LAUNCHER_COOKIE",
	"COMFY_SUPERVISOR_FALLBACKS", "COMFY_SUPERVISOR_MAIN",
}

// removedVariables are settings that comfy-env once had and that promise something which no longer happens.
var removedVariables = []string{"COMFY_ENV_ISOLATE", "COMFY_ENV_INSTALL_ISOLATED", "COMFY_ENV_AUTO_INSTALL"}

// warn notes variables that look like settings and are none: a misspelt one would silently not hold.
func (l *loader) warn() {
	const prefix = "COMFY_SUPERVISOR_"
	var known, short []string
	for i := range Table {
		known = append(known, Table[i].Variables...)
		short = append(short, strings.TrimPrefix(Table[i].Variables[0], prefix))
	}
	for name, value := range l.environ {
		switch {
		case strings.TrimSpace(value) == "": // as good as unset
		case slices.Contains(removedVariables, name):
			l.settings.Warnings = append(l.settings.Warnings, fmt.Sprintf("%s has no effect any more; remove it: a %s in a nodes folder is the switch, and build makes its environment",
				name, manifest.EnvironmentFile))
		case strings.HasPrefix(name, prefix) && !slices.Contains(known, name) && !slices.Contains(internalVariables, name) && !strings.HasPrefix(name, prefix+"TEST_"):
			warning := fmt.Sprintf("%s is no setting", name)
			if near := manifest.Nearest(strings.TrimPrefix(name, prefix), short); near != "" {
				warning += "; " + prefix + near + " is"
			}
			l.settings.Warnings = append(l.settings.Warnings, warning)
		}
	}
	slices.Sort(l.settings.Warnings)
}
