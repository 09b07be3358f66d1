package manifest

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	expansion    = regexp.MustCompile(`\$\{?[A-Za-z_][A-Za-z0-9_]*\}?|%[A-Za-z_][A-Za-z0-9_]*%`)
)

// breakingVariables would keep a worker from starting or let it load other code than its environment's.
var breakingVariables = map[string]string{
	"PYTHONHOME":               "Python would look for its standard library elsewhere and not start",
	"PYTHONPATH":               "modules of other places would come before the environment's own packages",
	"PYTHONSTARTUP":            "it is for interactive sessions only",
	"PYTHONEXECUTABLE":         "Python would take itself for another interpreter",
	"PYTHONPLATLIBDIR":         "Python would look for its standard library elsewhere and not start",
	"PYTHONUSERBASE":           "packages of a user's folder would mix with the environment's",
	"PYTHONINSPECT":            "Python would not end when its program ends",
	"PYTHONCASEOK":             "imports would find the wrong modules",
	"PYTHONIOENCODING":         "the worker's output could no longer be read",
	"__PYVENV_LAUNCHER__":      "Python would take itself for another interpreter",
	"VIRTUAL_ENV":              "the launcher sets it to the environment's own folder",
	"CONDA_PREFIX":             "the launcher sets it to the environment's own folder",
	"CONDA_DEFAULT_ENV":        "the launcher sets it to the environment's own name",
	"PATH":                     "programs of the environment and of the host (ffmpeg, git) would no longer be found; values are not expanded here",
	"LD_AUDIT":                 "it loads code into Python before the environment's own",
	"PLUGIN_PROTOCOL_VERSIONS": "it belongs to the launcher's own protocol",
}

// doubtfulVariables work, but rarely as meant.
var doubtfulVariables = map[string]string{
	"LD_PRELOAD":                 "the library is loaded into Python and every program it starts, before the environment's own libraries",
	"LD_LIBRARY_PATH":            "it replaces the host's value, and its folders come before the environment's own libraries",
	"DYLD_LIBRARY_PATH":          "it replaces the host's value, and its folders come before the environment's own libraries",
	"DYLD_FALLBACK_LIBRARY_PATH": "it replaces the host's value",
	"DYLD_INSERT_LIBRARIES":      "the library is loaded into Python and every program it starts, before the environment's own libraries",
	"TMPDIR":                     "the folder must exist on every machine the pack runs on",
	"TEMP":                       "the folder must exist on every machine the pack runs on",
	"TMP":                        "the folder must exist on every machine the pack runs on",
	"HOME":                       "caches and settings of all libraries move with it",
	"USERPROFILE":                "caches and settings of all libraries move with it",
}

// hostVariables tell a worker what its host is like; a pack's own value would make it disagree with its host.
var hostVariables = map[string]string{
	"COMFY_ENV_AIMDO_VERSION":         "the host's version of comfy-aimdo",
	"COMFY_ENV_AIMDO_SIMPLE_HEADROOM": "the host's --reserve-vram",
	"COMFY_ENV_AIMDO_HEADROOM":        "the host's --vram-headroom",
	"COMFY_ENV_AIMDO_NVML":            "the host's --disable-nvml-pressure",
	"COMFY_ENV_EXTRA_RESERVED_VRAM":   "the host's reserve",
	"COMFY_ENV_HOST_ARGS":             "the host's flags",
	"COMFY_ENV_ROOT":                  "the folder of all environments",
	"COMFY_ENV_CUDA_WHEELS_INDEX":     "the index that environments are built from",
	"COMFY_CPU":                       "the host's --cpu",
	"CUDA_VISIBLE_DEVICES":            "the cards that the host may use",
	"NVIDIA_VISIBLE_DEVICES":          "the cards that the host may use",
	"HIP_VISIBLE_DEVICES":             "the cards that the host may use",
	"ROCR_VISIBLE_DEVICES":            "the cards that the host may use",
	"CUDA_DEVICE_ORDER":               "the order in which the host numbers its cards",
}

const variableExample = `NAME = "value"`

func (c *checker) envVars(e *entry) {
	if t := c.wantTable(e, "[env_vars]", variableExample+" below [env_vars]"); t != nil {
		c.m.EnvVars = c.variables(t, "env_vars")
	}
}

// variables reads a table of environment variables.
func (c *checker) variables(t *table, section string) map[string]string {
	variables := make(map[string]string, len(t.entries))
	for _, e := range t.entries {
		text, ok := c.variableValue(e, section)
		if ok && section != "env_vars" && addsTo(e.name, text) {
			variables[e.name] = text
			continue
		}
		if c.variableName(e) && ok {
			variables[e.name] = text
		}
	}
	return variables
}

// addsTo reports whether the value of a list of folders keeps what is in it: in [activation.env], names of variables
// stand for their values.
func addsTo(name, value string) bool {
	switch strings.ToUpper(name) {
	case "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH":
		for _, found := range expansion.FindAllString(value, -1) {
			if strings.EqualFold(strings.Trim(found, "${}%"), name) {
				return true
			}
		}
	}
	return false
}

// variableValue is a value as the process will see it. Numbers are taken as written.
func (c *checker) variableValue(e *entry, section string) (string, bool) {
	v := e.value
	p := problem{at: v.span, severity: Error, code: CodeType,
		message: fmt.Sprintf("%s is %s, not a string", quoteName(e.name), describe(v)),
		why:     "variables are text", fix: "write " + variableExample}
	if scalar(v) {
		p.fix = fmt.Sprintf("write %s = %s", quoteName(e.name), quote(v.text))
		p.edits = []Edit{{v.span.start, v.span.end, quote(v.text)}}
	}
	switch v.kind {
	case kindString:
		if strings.ContainsRune(v.text, 0) {
			p.code, p.message, p.fix, p.edits = CodeEnvVarName, quoteName(e.name)+" holds a NUL character", "remove it", nil
			p.why = "it would end the value"
			c.problem(p)
			return "", false
		}
		if found := expansion.FindStringIndex(v.text); found != nil && section == "env_vars" {
			c.problem(problem{at: c.inText(v, span{found[0], found[1]}), severity: Warning, code: CodeEnvVarBreaks,
				message: fmt.Sprintf("%s is not expanded", v.text[found[0]:found[1]]), why: "the worker gets the text as it stands here",
				fix: "write the value itself, or the line below [activation.env]"})
		}
		return v.text, true
	case kindInteger:
		return strings.ReplaceAll(v.text, "_", ""), true
	case kindFloat, kindBoolean:
		text := v.text
		if v.kind == kindBoolean { // as Python writes it: what comfy-env hands over
			text = strings.ToUpper(text[:1]) + text[1:]
			p.fix = fmt.Sprintf(`write %s = %s, or "1" or "0" as its reader wants it`, quoteName(e.name), quote(text))
			p.edits = nil
		}
		p.severity, p.why = Warning, fmt.Sprintf("the worker gets the text %s", quote(text))
		c.problem(p)
		return text, true
	case kindTime:
		p.severity = Warning
		c.problem(p)
		return v.text, true
	}
	if v.kind == kindTable {
		p.message = fmt.Sprintf("[%s.%s] is a table, not a variable", section, e.name)
	}
	c.problem(p)
	return "", false
}

// variableName reports whether a variable can be set, and says so when it can not.
func (c *checker) variableName(e *entry) bool {
	name := strings.ToUpper(e.name)
	switch {
	case e.name == "" || strings.ContainsAny(e.name, "=\x00"):
		c.problem(problem{at: e.key, severity: Error, code: CodeEnvVarName, message: quote(e.name) + " can not be the name of a variable",
			why: "the system can not hold it", fix: "write " + variableExample})
		return false
	case strings.HasPrefix(name, "COMFY_SUPERVISOR_"):
		c.problem(problem{at: e.key, severity: Error, code: CodeEnvVarBreaks, message: e.name + " belongs to the supervisor",
			why: "a worker is found and ended by these variables", fix: "remove the line", edits: c.removal(e)})
		return false
	case breakingVariables[name] != "":
		c.problem(problem{at: e.key, severity: Error, code: CodeEnvVarBreaks, message: e.name + " would break the worker",
			why: breakingVariables[name], fix: "remove the line", edits: c.removal(e)})
		return false
	case hostVariables[name] != "":
		c.problem(problem{at: e.key, severity: Warning, code: CodeEnvVarHost, message: e.name + " has no effect: the host decides it",
			why: "it tells the worker " + hostVariables[name], fix: "remove the line", edits: c.removal(e)})
		return false
	case doubtfulVariables[name] != "":
		c.problem(problem{at: e.key, severity: Warning, code: CodeEnvVarBreaks, message: e.name + " may break the worker",
			why: doubtfulVariables[name], fix: "remove the line if the nodes work without it"})
	case !variableName.MatchString(e.name):
		c.problem(problem{at: e.key, severity: Warning, code: CodeEnvVarName, message: quote(e.name) + " is an unusual name of a variable",
			why: "most programs can not read it", fix: "write letters, digits and underscores"})
	}
	return true
}
