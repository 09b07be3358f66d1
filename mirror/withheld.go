package mirror

import "strings"

const (
	reasonOtherPython = "it belongs to the host's Python and would break the worker's"
	reasonShadow      = "it would shadow the worker's own packages with the host's"
	reasonBuild       = "it steers how environments are built, not how they run"
	reasonActivated   = "it names the environment that the host runs in, not the worker's"
	reasonOurs        = "it is the supervisor's own"
)

// inherited are the variables of a host's environment that do not go on to a worker.
var inherited = map[string]string{
	"PYTHONHOME":            reasonOtherPython,
	"PYTHONPATH":            reasonShadow,
	"PYTHONUSERBASE":        reasonShadow,
	"PYTHONNOUSERSITE":      "the worker has its own",
	"PYTHONIOENCODING":      "the worker has its own",
	"PYTHONSTARTUP":         "it is for interactive sessions",
	"PYTHONINSPECT":         "it would keep a worker from ending",
	"PYTHONPLATLIBDIR":      reasonOtherPython,
	"PYTHONEXECUTABLE":      reasonOtherPython,
	"__PYVENV_LAUNCHER__":   reasonOtherPython,
	"PYTHON_GIL":            "it ends a Python of another build at its start",
	"VIRTUAL_ENV":           reasonActivated,
	"VIRTUAL_ENV_PROMPT":    reasonActivated,
	"POETRY_ACTIVE":         reasonActivated,
	"PIPENV_ACTIVE":         reasonActivated,
	"CONDA":                 reasonActivated,
	variableWorker:          "the worker has its own",
	variableIsolated:        "the worker has its own",
	variableSerializers:     "it belongs to another pack's worker",
	"_CE_CONDA":             reasonActivated,
	"_CE_M":                 reasonActivated,
	"_CONDA_EXE":            reasonActivated,
	"_CONDA_ROOT":           reasonActivated,
	"_OLD_VIRTUAL_PATH":     reasonActivated,
	"_OLD_VIRTUAL_PS1":      reasonActivated,
	"COMFY_ENV_IPC_ADDR":    "it belongs to another launcher",
	"COMFY_ENV_IPC_AUTHKEY": "it belongs to another launcher",
}

// prefixRule keeps back every variable whose name begins so.
type prefixRule struct{ prefix, reason string }

// inheritedPrefixes are the same by the first letters of their names.
var inheritedPrefixes = []prefixRule{
	{"UV_", reasonBuild},
	{"CONDA_", reasonActivated},
	{"MAMBA_", reasonActivated},
	{"PIXI_", reasonActivated},
	{"PLUGIN_", "it belongs to the channel between supervisor and launcher"},
	{"COMFY_SUPERVISOR_", reasonOurs},
}

// forbidden are the variables that not even a pack may set for its worker.
var forbidden = map[string]string{
	"PYTHONHOME":       "the worker's Python would not find its own standard library",
	"PYTHONINSPECT":    "it would keep a worker from ending",
	"PYTHONPLATLIBDIR": "the worker's Python would not find its own packages",
}

var forbiddenPrefixes = []prefixRule{
	{"PLUGIN_", "it belongs to the channel between supervisor and launcher"},
	{"COMFY_SUPERVISOR_", reasonOurs},
}

// inheritedReason says why a variable of the host's environment is kept back, or nothing.
func inheritedReason(key string) string { return reasonOf(key, inherited, inheritedPrefixes) }

// forbiddenReason says why a variable of a pack's manifest is kept back, or nothing.
func forbiddenReason(key string) string { return reasonOf(key, forbidden, forbiddenPrefixes) }

func reasonOf(key string, names map[string]string, prefixes []prefixRule) string {
	if reason := names[key]; reason != "" {
		return reason
	}
	for _, rule := range prefixes {
		if strings.HasPrefix(key, rule.prefix) {
			return rule.reason
		}
	}
	return ""
}
