package manifest

// Code names a kind of diagnostic. Codes never change their meaning and are never used again for another.
type Code string

// The codes, in the order in which a file is looked at.
const (
	// Files and their places.
	CodeUnreadable    Code = "unreadable"
	CodeTooLarge      Code = "too-large"
	CodeEncoding      Code = "encoding"
	CodeMisplacedFile Code = "misplaced-file"
	CodeDuplicateName Code = "duplicate-environment-name"
	CodeNoName        Code = "no-environment-name"

	// TOML.
	CodeSyntax       Code = "syntax"
	CodeDuplicateKey Code = "duplicate-key"
	CodeNesting      Code = "nesting"
	CodeTooMany      Code = "too-many"

	// Structure.
	CodeUnknownTable   Code = "unknown-table"
	CodeUnknownKey     Code = "unknown-key"
	CodeRetired        Code = "retired-section"
	CodeMisplaced      Code = "misplaced-section"
	CodeRefused        Code = "refused-section"
	CodeType           Code = "wrong-type"
	CodeRange          Code = "out-of-range"
	CodeValue          Code = "unknown-value"
	CodeIgnored        Code = "ignored"
	CodeConflict       Code = "conflicting-keys"
	CodePythonVersion  Code = "python-version"
	CodePythonTooOld   Code = "python-too-old"
	CodePythonQuotes   Code = "python-unquoted"
	CodePythonConda    Code = "python-in-dependencies"
	CodeEnvVarName     Code = "env-var-name"
	CodeEnvVarBreaks   Code = "env-var-breaks-worker"
	CodeEnvVarHost     Code = "env-var-belongs-to-host"
	CodePlatform       Code = "unknown-platform"
	CodePlatformCannot Code = "platform-cannot-build"

	// Requirements.
	CodePackageName    Code = "package-name"
	CodePyPIVersion    Code = "pypi-version"
	CodeCondaVersion   Code = "conda-version"
	CodeMarker         Code = "marker"
	CodeExtras         Code = "extras"
	CodeURL            Code = "url"
	CodeDuplicate      Code = "duplicate-package"
	CodeTorchHost      Code = "torch-from-host"
	CodeTorchCUDA      Code = "torch-under-cuda"
	CodeHostPin        Code = "host-pin"
	CodeCUDADuplicate  Code = "duplicate-cuda-package"
	CodeNodePackSource Code = "node-pack-source"
)
