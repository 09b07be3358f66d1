package manifest

import _ "embed"

// Starter is a commented environment manifest to begin with. It is valid as it stands, and so is every line
// that is commented out in it.
//
//go:embed starter.toml
var Starter []byte

// StarterRoot is the same for a pack's root file.
//
//go:embed starter-root.toml
var StarterRoot []byte
