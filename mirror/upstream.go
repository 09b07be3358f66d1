package mirror

// What upstream fixes: the names of ComfyUI's flags (0.30 to 0.38) and of the variables that launchers of isolated
// packs and packs themselves rely on (comfy-env 0.4.46).

// Variables that tell a worker how its host's pager and memory are set up.
const (
	variableWorkerPager    = "COMFY_ENV_WORKER_AIMDO"
	variablePagerVersion   = "COMFY_ENV_AIMDO_VERSION"
	variableSimpleHeadroom = "COMFY_ENV_AIMDO_SIMPLE_HEADROOM" // bytes
	variableHeadroom       = "COMFY_ENV_AIMDO_HEADROOM"        // bytes
	variablePagerNVML      = "COMFY_ENV_AIMDO_NVML"
	variableReserve        = "COMFY_ENV_EXTRA_RESERVED_VRAM" // bytes
	variableCPU            = "COMFY_CPU"
)

// variableVRAMState is ours: the host's vram_state, which ComfyUI reads before the first load and so before the first
// budget reply.
const variableVRAMState = "COMFY_ENV_VRAM_STATE"

// Variables that carry or steer the mirrored flags.
const (
	variableHostArguments = "COMFY_ENV_HOST_ARGS"
	variableMirror        = "COMFY_ENV_MIRROR_ARGS"
	variableNoMirror      = "COMFY_ENV_NO_MIRROR"
	variableAttention     = "COMFY_ENV_WORKER_ATTENTION"
	variableHostLogLevel  = "COMFY_ENV_HOST_LOG_LEVEL"
	variableAllocator     = "PYTORCH_CUDA_ALLOC_CONF"
)

// Variables by which packs find ComfyUI and know that they run in a worker.
const (
	variableComfyUI     = "COMFYUI_BASE"
	variableUser        = "COMFYUI_USER_DIR"
	variableSerializers = "COMFY_ENV_SERIALIZER_FILES"
	variableIsolated    = "COMFYUI_ISOLATION_WORKER"
)

// variableWorker is the one variable of ours that a worker has; the scan for what a dead worker left goes by it.
const variableWorker = "COMFY_SUPERVISOR_WORKER"

// asyncAllocator is what ComfyUI's cuda_malloc.py adds to PYTORCH_CUDA_ALLOC_CONF.
const asyncAllocator = "backend:cudaMallocAsync"

// attentionFlag is the synthetic flag with the host's resolved attention backend.
const attentionFlag = "attention"

// attentionBackends are the names of ComfyUI's attention functions without their prefix.
var attentionBackends = []string{"sage", "flash", "xformers", "pytorch", "split", "sub_quad", "ck"}

// attentionPackages are the backends that end the process at import where their package is missing, so that a worker
// asks first.
var attentionPackages = map[string]string{"sage": "sageattention", "flash": "flash_attn"}

// vramStates are the members of comfy.model_management.VRAMState.
var vramStates = []string{"DISABLED", "NO_VRAM", "LOW_VRAM", "NORMAL_VRAM", "HIGH_VRAM", "SHARED"}

// logLevels are the console levels of cli_args.LOG_LEVELS, most talkative first, with logging's number for each.
var logLevels = []struct {
	name  string
	level int
}{
	{"DEBUG", 10}, {"DETAIL", 15}, {"INFO", 20}, {"WARNING", 30}, {"ERROR", 40}, {"CRITICAL", 50},
}

// mirroredFlags are the attributes of comfy.cli_args.args that a worker takes over, by what they decide.
var mirroredFlags = newSet(
	// numerics
	"force_fp32", "force_fp16", "fp32_unet", "fp64_unet", "bf16_unet", "fp16_unet",
	"fp8_e4m3fn_unet", "fp8_e5m2_unet", "fp8_e8m0fnu_unet", "fp16_vae", "fp32_vae", "bf16_vae", "cpu_vae",
	"fp8_e4m3fn_text_enc", "fp8_e5m2_text_enc", "fp16_text_enc", "fp32_text_enc", "bf16_text_enc",
	"fp16_intermediates", "supports_fp8_compute", "deterministic", "fast", "force_channels_last", "force_non_blocking",
	// memory, frozen when comfy.model_management is imported
	"disable_smart_memory", "disable_pinned_memory", "async_offload", "disable_async_offload", "fast_disk",
	"disable_fast_disk", "high_ram", "disable_mmap", "mmap_torch_files",
	// placement
	"gpu_only", "directml",
	// attention and kernels
	"use_split_cross_attention", "use_quad_cross_attention", "use_pytorch_cross_attention", "use_ck_attention",
	"disable_xformers", "force_upcast_attention", "dont_upcast_attention", "enable_triton_backend",
	"disable_triton_backend", "disable_comfy_compiler", "disable_cuda_graphs", "assert_graph_breaks",
	"cuda_malloc", "disable_cuda_malloc",
	// what a node's work looks like to the user
	"verbose", "log_stdout", "disable_metadata", "preview_method", "preview_size", "default_hashing_function",
	"comfy_api_base",
)

// carriedFlags are never mirrored: each has another way to the worker, or none of its business.
var carriedFlags = map[string]string{
	"lowvram":               "the VRAM state crosses by itself, with every budget reply",
	"novram":                "the VRAM state crosses by itself, with every budget reply",
	"highvram":              "the VRAM state crosses by itself, with every budget reply",
	"cuda_device":           "the visible devices are narrowed already",
	"default_device":        "the visible devices are ordered already",
	"cpu":                   variableCPU + " carries it",
	"reserve_vram":          "the budget reply carries it; " + variableReserve + " until the first one",
	"vram_headroom":         variableHeadroom + " carries it",
	"disable_nvml_pressure": variablePagerNVML + " carries it",
	"disable_dynamic_vram":  variableWorkerPager + " carries what came of it",
	"enable_dynamic_vram":   variableWorkerPager + " carries what came of it",
	"use_sage_attention":    "the flag " + attentionFlag + " carries what came of it",
	"use_flash_attention":   "the flag " + attentionFlag + " carries what came of it",
	"cache_ram":             "a worker has no executor and so no cache",
	"cache_classic":         "a worker has no executor and so no cache",
	"cache_lru":             "a worker has no executor and so no cache",
	"cache_none":            "a worker has no executor and so no cache",
}

type set map[string]struct{}

func newSet(names ...string) set {
	members := make(set, len(names))
	for _, name := range names {
		members[name] = struct{}{}
	}
	return members
}

func (s set) has(name string) bool {
	_, found := s[name]
	return found
}
