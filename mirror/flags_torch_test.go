//go:build torch

package mirror

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/upstream"
)

// hostOnly are flags of ComfyUI's server, of its folders, and of how it starts: no worker reads them.
var hostOnly = newSet(
	"listen", "port", "tls_keyfile", "tls_certfile", "enable_cors_header", "max_upload_size", "auto_launch",
	"disable_auto_launch", "dont_print_server", "quick_test_for_ci", "windows_standalone_build", "multi_user",
	"front_end_version", "front_end_root", "enable_compress_response_body", "database_url", "enable_assets",
	"enable_asset_hashing", "feature_flag", "list_feature_flags", "debug_hang", "enable_manager", "disable_manager_ui",
	"enable_manager_legacy_ui", "disable_all_custom_nodes", "whitelist_custom_nodes", "disable_api_nodes",
	"base_directory", "extra_model_paths_config", "output_directory", "temp_directory", "input_directory",
	"user_directory", "models_directory", "oneapi_device_selector",
)

func TestEveryFlagOfTheRealComfyUIIsMirroredCarriedOrTheHostsOwn(t *testing.T) {
	t.Parallel()
	tree, python := upstream.ComfyUI(t), pythontest.Interpreters(t)[0].Path
	const script = "import sys; sys.path.insert(0, sys.argv.pop()); from comfy.cli_args import args; print(*vars(args))"
	printed, err := exec.CommandContext(t.Context(), python, "-B", "-c", script, tree).Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(printed))
	if len(names) < 90 {
		t.Fatalf("ComfyUI has only %d flags: %v", len(names), names)
	}
	for _, name := range names {
		places := 0
		for _, known := range []bool{mirroredFlags.has(name), carriedFlags[name] != "", hostOnly.has(name)} {
			if known {
				places++
			}
		}
		if places != 1 {
			t.Errorf("the flag %s is in %d of the three lists, want one", name, places)
		}
	}
}
