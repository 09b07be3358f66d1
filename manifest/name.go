package manifest

import (
	"path/filepath"
	"strings"
)

// packPrefixes are dropped from a pack's folder name, in these spellings only: environments that exist
// under names made by comfy-env are found by the same rule.
var packPrefixes = []string{"ComfyUI-", "ComfyUI_", "comfyui-", "comfyui_"}

// EnvironmentName derives the name of the environment that a manifest describes: the pack folder's name
// without its ComfyUI prefix and the name of the folder that holds the manifest, joined by a dash, in lower
// case, everything outside [a-z0-9-] a dash (comfyui-sam3/nodes -> sam3-nodes). A manifest in the pack
// folder itself has the pack's name alone. The result is empty when neither name has a usable character.
func EnvironmentName(packDirectory, manifestFile string) string {
	pack := filepath.Base(packDirectory)
	for _, prefix := range packPrefixes {
		if rest, ok := strings.CutPrefix(pack, prefix); ok {
			pack = rest
			break
		}
	}
	name := sanitizeName(pack)
	holder := filepath.Dir(manifestFile)
	if filepath.Clean(holder) == filepath.Clean(packDirectory) {
		return name
	}
	folder := sanitizeName(filepath.Base(holder))
	if name == "" || folder == "" {
		return name + folder
	}
	return name + "-" + folder
}

// sanitizeName is pixi's alphabet for names: lower case, runs of anything else one dash, none at the ends.
func sanitizeName(text string) string {
	var name strings.Builder
	dash := false
	for _, r := range strings.ToLower(text) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			dash = name.Len() > 0
			continue
		}
		if dash {
			name.WriteByte('-')
			dash = false
		}
		name.WriteRune(r)
	}
	return name.String()
}
