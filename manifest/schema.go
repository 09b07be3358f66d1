package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// object is a JSON object of a schema.
type object = map[string]any

// Patterns of the schema, in the dialect of ECMAScript. They are what the readers of this package accept, or a
// little more where a pattern can not say it all.
const (
	pythonPattern = `^(3\.[1-9]\d{1,2}(\.\d{1,3})?|(==?\s*)?3\.[1-9]\d(\.\d{1,3})?(\.\*)?)$`
	namePattern   = `^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	condaPattern  = `^[A-Za-z0-9_][A-Za-z0-9._-]*$`
	oneVersion    = `v?(\d+!)?\d+(\.\d+)*([-_.]?([aA]|[bB]|[cC]|[rR][cC]|[aA][lL][pP][hH][aA]|[bB][eE][tT][aA]|[pP][rR][eE]([vV][iI][eE][wW])?)[-_.]?\d*)?(-\d+|[-_.]?([pP][oO][sS][tT]|[rR][eE][vV]|[rR])[-_.]?\d*)?([-_.]?[dD][eE][vV][-_.]?\d*)?(\+[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*)?(\.\*)?`
	oneSpecifier  = `\s*((===\s*[^\s,;]+)|((~=|==|!=|<=|>=|<|>)\s*` + oneVersion + `))\s*`
	pypiPattern   = `^\s*(\*|` + oneSpecifier + `(,` + oneSpecifier + `)*)\s*$`
	condaVersion  = `^\s*\(?[<>=!~]*\s*[0-9A-Za-z*(][0-9A-Za-z._+!*(), |<>=~-]*$`
	sizePattern   = `^\s*(\d+(\.\d*)?|\.\d+)\s*([kKmMgGtT][iI]?)?[bB]\s*$`
	sharePattern  = `^\s*(100(\.0*)?|\d{1,2}(\.\d*)?|\.\d+)\s*%\s*$`
	limitPattern  = `^\s*((\d+(\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s|m|h)?\s*)+$`
	urlPattern    = `^(https?|file)://`
	gitPattern    = `^(https?|ssh|git|file)://`
)

// Schema is the JSON schema of comfy-env.toml, or of comfy-env-root.toml, for editors and validators. It is made
// from the tables that the reader of the files uses.
func Schema(root bool) ([]byte, error) {
	schema := environmentSchema()
	if root {
		schema = rootSchema()
	}
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the schema: %w", err)
	}
	return append(text, '\n'), nil
}

func stringType(description string) object {
	return object{"type": "string", "description": description}
}

func pattern(expression, description string) object {
	return object{"type": "string", "pattern": expression, "description": description}
}

func closed(properties object, description string) object {
	return object{"type": "object", "properties": properties, "additionalProperties": false, "description": description}
}

func listOf(items object, description string) object {
	return object{"type": "array", "items": items, "description": description}
}

func either(options ...object) object {
	return object{"anyOf": options}
}

func rootSchema() object {
	pack := closed(object{
		"github": stringType("owner/name, or an address"), "repo": stringType("owner/name, or an address"), "tag": stringType("tag to take"),
		"branch": stringType("branch to take"), "commit": pattern(`^[0-9a-fA-F]{7,64}$`, "commit to take"),
		"registry": stringType("name in ComfyUI's registry"), "version": stringType("version in the registry"),
	}, "where the pack comes from")
	pack["anyOf"] = []object{{"required": []string{"github"}}, {"required": []string{"repo"}}, {"required": []string{"registry"}}}
	delete(pack, "additionalProperties") // unknown keys have no effect, which is a warning
	return object{
		"title": RootFile, "type": "object", "additionalProperties": false, "description": "What holds for a node pack as a whole.",
		"properties": object{
			"$schema": object{"type": "string"},
			"node_packs": object{"type": "object", "description": "other packs that this one needs", "additionalProperties": either(
				pattern(`^([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+|(https?|ssh|git)://.+)$`, "owner/name on GitHub, or an address"), pack)},
			"types": object{"type": "object", "description": "socket types that cross between processes",
				"additionalProperties": object{"type": "string", "enum": typeModes}},
		},
	}
}

func environmentSchema() object {
	conda, pypi := condaSchema(), pypiSchema()
	activation := closed(object{
		"scripts": listOf(object{"type": "string"}, "scripts to run when the environment is entered"), "env": variablesSchema("variables to set when the environment is entered"),
	}, "what happens when the environment is entered")
	system := systemSchema()
	targets := object{}
	for _, key := range targetKeys {
		targets[key] = object{}
	}
	for _, key := range []string{"dependencies", "host-dependencies", "build-dependencies", "constraints"} {
		targets[key] = object{"$ref": "#/definitions/conda"}
	}
	targets["pypi-dependencies"] = object{"$ref": "#/definitions/pypi"}
	targets["activation"] = object{"$ref": "#/definitions/activation"}
	targets["system-requirements"] = object{"$ref": "#/definitions/system"}
	properties := object{
		"$schema": object{"type": "string"},
		"python":  pattern(pythonPattern, `version of the interpreter, in quotes ("3.12"); without it the host's`),
		"cuda": object{"type": "object", "description": "packages built against torch and CUDA", "properties": object{
			"packages": either(listOf(pattern(`^[A-Za-z0-9][A-Za-z0-9._-]*\s*([<>=!~].*)?$`, "a package"), "packages of the CUDA wheel index"), stringType("one package")),
		}},
		"env_vars":            variablesSchema("variables of the worker's process"),
		"options":             optionsSchema(),
		"dependencies":        object{"$ref": "#/definitions/conda"},
		"host-dependencies":   object{"$ref": "#/definitions/conda"},
		"build-dependencies":  object{"$ref": "#/definitions/conda"},
		"constraints":         object{"$ref": "#/definitions/conda"},
		"pypi-dependencies":   object{"$ref": "#/definitions/pypi"},
		"pypi-options":        pypiOptionsSchema(),
		"activation":          object{"$ref": "#/definitions/activation"},
		"system-requirements": object{"$ref": "#/definitions/system"},
		"workspace":           workspaceSchema(),
		"target": object{"type": "object", "description": "what holds for one platform",
			"propertyNames": object{"enum": slices.Concat(platformFamilies, platforms)}, "additionalProperties": closed(targets, "what holds for this platform")},
		"exclude-newer":      object{"type": []string{"string"}, "description": "packages published after this date are not taken"},
		"pypi-exclude-newer": object{"type": []string{"string", "object"}, "description": "Python packages published after this date are not taken"},
		"tasks":              object{"type": []string{"object", "array", "string"}, "description": "has no effect here"},
		"package":            object{"type": "object", "description": "a package of pixi's build"},
		"dev":                object{"type": "object", "description": "source packages of pixi's build"},
		"tool":               object{"description": "left to other tools"},
	}
	return object{
		"title": EnvironmentFile, "type": "object", "additionalProperties": false, "properties": properties,
		"description": "The environment of the nodes in one folder.",
		"definitions": object{"conda": conda, "pypi": pypi, "activation": activation, "system": system},
	}
}

func variablesSchema(description string) object {
	refused := slices.Sorted(maps.Keys(breakingVariables))
	return object{"type": "object", "description": description,
		"additionalProperties": object{"type": []string{"string", "number", "boolean"}},
		"propertyNames":        object{"pattern": `^[^=]+$`, "not": either(object{"enum": refused}, object{"pattern": "^(?:COMFY_SUPERVISOR_|comfy_supervisor_)"})},
	}
}

func optionsSchema() object {
	memory, properties := object{}, object{}
	for i := range OptionKeys {
		key := &OptionKeys[i]
		var schema object
		switch key.Kind {
		case Limit:
			schema = either(object{"type": "number", "minimum": 0, "maximum": maxDuration.Seconds()}, object{"type": "string", "pattern": limitPattern})
		case Cap:
			schema = either(object{"type": "string", "pattern": sizePattern}, object{"type": "string", "pattern": sharePattern})
		default:
			schema = object{"type": "string", "enum": key.Values}
		}
		schema["description"] = key.Doc
		if inner, ok := strings.CutPrefix(key.Name, "memory."); ok {
			memory[inner] = schema
		} else {
			properties[key.Name] = schema
		}
	}
	// Unknown keys have no effect, which is a warning; so the tables are open.
	properties["memory"] = object{"type": "object", "properties": memory, "description": "caps of the worker"}
	return object{"type": "object", "properties": properties, "description": "limits of the worker"}
}

func condaSchema() object {
	properties := object{}
	for _, key := range matchspecKeys {
		properties[key] = object{}
	}
	properties["version"] = pattern(condaVersion, "conda version")
	properties["build"] = stringType("build string")
	properties["channel"] = stringType("channel to take it from")
	return object{"type": "object", "description": "conda packages", "propertyNames": object{"pattern": condaPattern},
		"additionalProperties": either(pattern(condaVersion, `conda version, "*" for any`), closed(properties, "a conda package"))}
}

func pypiSchema() object {
	text := object{"type": "string"}
	properties := object{
		"version": pattern(pypiPattern, `PEP 440 version, "*" for any`), "extras": either(listOf(pattern(namePattern, "an extra"), "extras to install"), text),
		"env-markers": stringType("PEP 508 marker"), "index": pattern(urlPattern, "index to take it from"), "path": stringType("folder or archive, relative to this file"),
		"editable": object{"type": "boolean"}, "git": pattern(gitPattern, "address of a git repository"), "branch": text, "tag": text, "rev": text,
		"lfs": object{"type": "boolean"}, "url": pattern(urlPattern, "address of an archive"), "subdirectory": text,
	}
	table := closed(properties, "a Python package")
	table["oneOf"] = []object{{"required": []string{"version"}}, {"required": []string{"git"}}, {"required": []string{"path"}}, {"required": []string{"url"}}}
	table["dependencies"] = object{"branch": []string{"git"}, "tag": []string{"git"}, "rev": []string{"git"}, "index": []string{"version"}, "editable": []string{"path"}}
	table["not"] = either(object{"required": []string{"branch", "tag"}}, object{"required": []string{"branch", "rev"}}, object{"required": []string{"tag", "rev"}})
	hosts := slices.Concat(TorchFamily, HostPins) // taken from the host whatever stands here
	return object{"type": "object", "description": "Python packages; torch and comfy-aimdo are the host's", "propertyNames": object{"pattern": namePattern},
		"patternProperties":    object{"^(?:" + strings.ReplaceAll(strings.Join(hosts, "|"), "-", "[-_.]+") + ")$": object{}},
		"additionalProperties": either(pattern(pypiPattern, `PEP 440 version, "*" for any`), table)}
}

func pypiOptionsSchema() object {
	set := either(object{"type": "boolean"}, listOf(pattern(namePattern, "a package"), "packages"))
	urls := either(listOf(pattern(urlPattern, "an address"), "addresses"), pattern(urlPattern, "an address"))
	return closed(object{
		"index-url": pattern(urlPattern, "the index instead of the usual one"), "extra-index-urls": urls,
		"find-links": listOf(either(closed(object{"path": object{"type": "string"}}, "a folder"), closed(object{"url": pattern(urlPattern, "a page")}, "a page")), "where wheels lie"),
		"no-build":   set, "no-binary": set, "no-build-isolation": set,
		"index-strategy": object{"type": "string", "enum": indexStrategies}, "prerelease-mode": object{"type": "string", "enum": prereleaseModes},
		"skip-wheel-filename-check": object{"type": "boolean"}, "dependency-overrides": object{"$ref": "#/definitions/pypi"},
	}, "where Python packages come from")
}

func systemSchema() object {
	version := object{"type": []string{"string", "number", "boolean"}}
	properties := object{}
	for _, key := range systemRequirementKeys {
		properties[key] = version
	}
	properties["libc"] = either(version, closed(object{"family": object{}, "version": object{}}, "the C library"))
	return closed(properties, "what the machine must have")
}

func workspaceSchema() object {
	properties := object{}
	for _, key := range workspaceKeys {
		properties[key] = object{}
	}
	channel := either(object{"type": "string", "minLength": 1}, closed(object{"channel": object{"type": "string"}, "priority": object{"type": "integer"}}, "a channel with its priority"))
	properties["channels"] = either(listOf(channel, "conda channels"), stringType("one conda channel"))
	return closed(properties, "conda channels and pixi's own options; name, version and platforms are generated")
}
