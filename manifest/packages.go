package manifest

import (
	"regexp"
	"slices"
	"strings"
)

// packageName is a name as PEP 508 has it.
var packageName = regexp.MustCompile(`^(?i:[A-Z0-9]|[A-Z0-9][A-Z0-9._-]*[A-Z0-9])$`)

// condaName is a name as conda has it.
var condaName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// NormalizeName is a Python package's name in the one spelling that all others mean (PEP 503): lower case, runs
// of dashes, underscores and dots one dash.
func NormalizeName(name string) string {
	plain := true
	for i := range len(name) {
		c := name[i]
		if c >= 'A' && c <= 'Z' || c == '_' || c == '.' || c == '-' && i+1 < len(name) && (name[i+1] == '-' || name[i+1] == '_' || name[i+1] == '.') {
			plain = false
			break
		}
	}
	if plain {
		return name
	}
	var out strings.Builder
	out.Grow(len(name))
	dash := false
	for i := range len(name) {
		switch c := name[i]; {
		case c == '-' || c == '_' || c == '.':
			if !dash {
				out.WriteByte('-')
			}
			dash = true
		case c >= 'A' && c <= 'Z':
			out.WriteByte(c + 'a' - 'A')
			dash = false
		default:
			out.WriteByte(c)
			dash = false
		}
	}
	return out.String()
}

// TorchFamily are the packages of which every environment gets the host's versions, normalized.
var TorchFamily = []string{"torch", "torchvision", "torchaudio"}

// HostPins are the packages of which every environment gets the host's own pin, normalized.
var HostPins = []string{"comfy-aimdo", "comfy-kitchen"}

// condaTorch are conda's names of PyTorch itself.
var condaTorch = []string{"pytorch", "pytorch-cpu", "pytorch-gpu"}

// platformOnly are Python packages that exist for some platforms only: the prefixes of those in pixi's
// spelling, and what takes their place elsewhere.
var platformOnly = map[string]struct {
	platforms []string
	instead   string
}{
	"triton":         {[]string{"linux-"}, "triton-windows is the package on Windows"},
	"triton-windows": {[]string{"win-"}, "triton is the package on Linux"},
	"msvc-runtime":   {[]string{"win-"}, ""},
	"pywin32":        {[]string{"win-"}, ""},
	"pypiwin32":      {[]string{"win-"}, ""},
	"pyobjc":         {[]string{"osx-"}, ""},
	"pyobjc-core":    {[]string{"osx-"}, ""},
	"uvloop":         {[]string{"linux-", "osx-"}, ""},
}

// platforms are pixi's, and the families of them that a [target] may name.
var platforms = []string{
	"linux-64", "linux-aarch64", "win-64", "win-arm64", "osx-64", "osx-arm64", "linux-32", "linux-armv6l",
	"linux-armv7l", "linux-ppc64le", "linux-ppc64", "linux-ppc", "linux-s390x", "linux-riscv32", "linux-riscv64",
	"linux-loongarch64", "win-32", "noarch", "emscripten-wasm32", "wasi-wasm32", "zos-z", "freebsd-64",
}

var platformFamilies = []string{"unix", "linux", "win", "osx"}

// platformAliases are what other tools call pixi's platforms.
var platformAliases = map[string]string{
	"linux-x86-64": "linux-64", "linux-amd64": "linux-64", "linux64": "linux-64", "linux-x64": "linux-64",
	"linux-arm64": "linux-aarch64", "windows": "win", "win32": "win", "win64": "win-64", "windows-64": "win-64",
	"win-x64": "win-64", "win-amd64": "win-64", "win-x86-64": "win-64", "windows-x86-64": "win-64", "windows-x64": "win-64",
	"macos": "osx", "darwin": "osx", "mac": "osx", "osx-aarch64": "osx-arm64", "macos-arm64": "osx-arm64",
	"darwin-arm64": "osx-arm64", "osx-x86-64": "osx-64", "macos-64": "osx-64",
}

// MatchesPlatform reports whether a [target] selector holds for a platform in pixi's spelling.
func MatchesPlatform(selector, platform string) bool {
	switch selector {
	case "unix":
		return !strings.HasPrefix(platform, "win-")
	case "linux", "win", "osx":
		return strings.HasPrefix(platform, selector+"-")
	}
	return selector == platform
}

// KnownPlatform reports whether a platform is one of pixi's.
func KnownPlatform(platform string) bool { return slices.Contains(platforms, platform) }
