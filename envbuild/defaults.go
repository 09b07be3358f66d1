package envbuild

// The product's own endpoints. Each can be replaced in the settings; nothing else in the module names a host.
const (
	// DefaultTorchIndex is where torch's project publishes its builds, one simple index for each build kind
	// below it: <index>/cpu, <index>/cu128, <index>/rocm6.4.
	DefaultTorchIndex = "https://download.pytorch.org/whl"
	// DefaultCUDAWheelsIndex is the simple index of wheels with compiled CUDA code.
	DefaultCUDAWheelsIndex = "https://comfy-forge.github.io/cuda-wheels/"
	// DefaultPixiReleases holds pixi's release archives, at <base>/v<version>/<archive>.
	DefaultPixiReleases = "https://github.com/prefix-dev/pixi/releases/download"
)

// The uv that is fetched where the machine has none: a wheel that carries the static binary.
const uvVersion = "0.13.9"

// uvWheelHashes are the SHA-256 of that version's wheels, by the platform tag in their file name.
var uvWheelHashes = map[string]string{
	"macosx_10_12_x86_64": "c16ed11e013557536b3e60065f1b912f6407bd6518e041b961e23ef9e6b4fbf5",
	"macosx_11_0_arm64":   "66c512266d633bef48384a1f53003f41f2a8e7b36fe6e7fbfd3e0fd52d96fa63",
	"manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64": "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
	"manylinux_2_17_x86_64.manylinux2014_x86_64":                         "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
	"manylinux_2_28_aarch64":                                             "ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375",
	"musllinux_1_1_x86_64":                                               "2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25",
	"win_amd64":                                                          "6a44b2ed8111d2f60d2b92627c5dccda3f7ed7570b18ce115e569cd68c28246b",
	"win_arm64":                                                          "eeb92051c2123b9730c46b04cc843cfa4bc7d7b0aec56df431a2215ef4cb0273",
}
