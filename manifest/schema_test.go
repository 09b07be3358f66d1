package manifest

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compileSchema makes a validator of the schema that check prints.
func compileSchema(t *testing.T, root bool) *jsonschema.Schema {
	t.Helper()
	text, err := Schema(root)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatalf("the schema is none: %v", err)
	}
	return schema
}

// validate reads TOML and validates it; the second result is false when it is no TOML.
func validate(t *testing.T, schema *jsonschema.Schema, content []byte) (error, bool) {
	t.Helper()
	var tree map[string]any
	if toml.Unmarshal(content, &tree) != nil {
		return nil, false
	}
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(document), true
}

// beyondSchema are the kinds of errors that a schema can not express.
var beyondSchema = []Code{CodePlatformCannot, CodeDuplicate, CodeMarker, CodeConflict}

func schemaVerdict(t *testing.T, environment, root *jsonschema.Schema, name string, content []byte) {
	t.Helper()
	schema := environment
	if filepath.Base(name) == RootFile {
		schema = root
	}
	failure, isTOML := validate(t, schema, content)
	if !isTOML {
		return
	}
	_, diagnostics := ParseFor("linux-64", name, content)
	refused := slices.ContainsFunc(diagnostics, func(d Diagnostic) bool { return d.Severity == Error && !slices.Contains(beyondSchema, d.Code) })
	beyond := slices.ContainsFunc(diagnostics, func(d Diagnostic) bool { return d.Severity == Error && slices.Contains(beyondSchema, d.Code) })
	if refused && failure == nil {
		t.Errorf("%s: the schema accepts what is refused:\n%s\n%s", name, verdict(name, diagnostics), content)
	}
	if !refused && !beyond && failure != nil {
		t.Errorf("%s: the schema refuses what is accepted: %v\n%s", name, failure, content)
	}
}

func TestTheSchemaJudgesTheWildAsTheParserDoes(t *testing.T) {
	environment, root := compileSchema(t, false), compileSchema(t, true)
	for _, file := range wild(t) {
		schemaVerdict(t, environment, root, file.Name, file.Data)
		fixed, _ := Fix("linux-64", file.Name, file.Data)
		schemaVerdict(t, environment, root, file.Name, fixed)
	}
}

func TestTheSchemaJudgesSingleMistakesAsTheParserDoes(t *testing.T) {
	environment, root := compileSchema(t, false), compileSchema(t, true)
	for _, content := range []string{
		"", `python = "3.12"`, `python = "3.9"`, `python = 3.12`, `python = ">=3.12"`, `python = "==3.12.*"`, `python = "cp312"`, `python = "=3.9"`, "[cuda]\npackages = \"a\"", "[cuda]\npackages = [1]", "[cuda]\nx = \"1\"", "cuda = 1",
		"[env_vars]\nA = 1", "[env_vars]\nPYTHONPATH = \"x\"", "[env_vars]\nCOMFY_SUPERVISOR_X = \"x\"", "[env_vars]\nA = [1]", "[env_vars]\nCUDA_VISIBLE_DEVICES = \"0\"",
		"[options]\nreap = \"30m\"\nstart = 5\nunknown = 1", "[options]\nreap = -1", "[options]\nreap = \"soon\"", "[options]\ninference = \"off\"", "[options]\ninference = \"on\"",
		"[options.memory]\nvram = \"8 GiB\"", "[options.memory]\nvram = \"40.5%\"", "[options.memory]\nvram = 8", "[options.memory]\nvram = \"8\"", "[options.memory]\nvram = \"140%\"",
		"[pypi-dependencies]\na = \">=1,<2\"", "[pypi-dependencies]\na = \"=1\"", "[pypi-dependencies]\na = \"1\"", "[pypi-dependencies]\na = 1", "[pypi-dependencies]\na = { git = \"https://h/a\" }",
		"[pypi-dependencies]\na = { git = \"git@h:a\" }", "[pypi-dependencies]\na = { versoin = \"*\" }", "[pypi-dependencies]\na = { url = \"https://h/a.whl\", extras = [\"b\"] }",
		"[pypi-dependencies]\ntorch = \"nonsense\"", "[pypi-dependencies]\n\"a[b]\" = \"*\"", "[pypi-dependencies]\na = { version = \"*\", extras = [\"b,c\"] }", "[pypi-dependencies]\na = { version = \"*\", index = \"nowhere\" }",
		"[dependencies]\na = \"*\"\nb = \">=1,<2|3.*\"", "[dependencies]\na = \"^1\"", "[dependencies]\na = { version = \"1\", index = \"x\" }", "[dependencies]\na = { version = \"1\", channel = \"x\" }", "[dependencies]\na = 1",
		"[target.linux-64.dependencies]\na = \"*\"", "[target.linux_64.dependencies]\na = \"*\"", "[target.linux-64.cuda]\npackages = []", "[target.win.pypi-dependencies]\na = \"=1\"",
		"[workspace]\nchannels = [\"a\", { channel = \"b\", priority = 1 }]", "[workspace]\nname = \"x\"", "[workspace]\nchanels = []", "[system-requirements]\ncuda = \"12\"\nlibc = { family = \"glibc\", version = \"2.35\" }",
		"[system-requirements]\ncuda = [1]", "[system-requirements]\nx = 1", "[activation]\nscripts = [\"a.sh\"]\nenv = { A = \"b\" }", "[activation]\nscript = \"a\"", "[activation.env]\nPYTHONHOME = \"x\"",
		"[pypi-options]\nindex-url = \"https://h/\"\nno-build = [\"a\"]\nfind-links = [{ path = \"x\" }]", "[pypi-options]\nindex-strategy = \"best\"", "[pypi-options]\nfind-links = [\"x\"]", "[pypi-options]\nx = 1",
		"[environments]\na = []", "[feature.a]", "[types]\nA = \"custom\"", "[node_packs]\nA = \"b/c\"", "[apt]\npackages = []", "[tasks]\na = \"b\"", "[tool.x]\na = 1", "\"$schema\" = \"x\"",
	} {
		schemaVerdict(t, environment, root, EnvironmentFile, []byte(content))
	}
	for _, content := range []string{
		"", "[types]\nA = \"custom\"", "[types]\nA = \"costum\"", "[node_packs]\nA = \"b/c\"", "[node_packs]\nA = \"b\"", "[node_packs]\nA = \"https://h/a\"", "[node_packs]\nA = { github = \"a/b\", tag = \"v1\" }",
		"[node_packs]\nA = { tag = \"v1\" }", "[node_packs]\nA = { registry = \"a\" }", "[node_packs]\nA = 1", "[node_packs]\nA = { github = \"a/b\", commit = \"x\" }", "[node_reqs]", "[cuda]", "[apt]", "python = \"3.12\"",
		"[node_packs]\nA = { github = \"a/b\", unknown = \"x\" }",
	} {
		schemaVerdict(t, environment, root, RootFile, []byte(content))
	}
	for _, file := range []string{EnvironmentFile, RootFile} {
		schemaVerdict(t, environment, root, file, StarterFor(file == RootFile))
	}
}
