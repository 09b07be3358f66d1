// Package envbuild turns manifests and the facts of a host into environments on disk.
//
// It owns the host's facts (read from files, never by importing torch), the plan (a value: interpreter,
// requirements, pins, the torch family, index, backend, each with its reason), the backends that carry a
// plan out, the fetching of the tools they need, the store of immutable revisions with its records, and the
// product's default endpoints.
//
// It may import manifest and manifest/settings, and nothing else of this module: no worker, socket or
// session is known here.
//
// It promises that an environment is either complete or not there: a revision is built in its final place,
// counts only once its stamp is written, and is never changed or renamed afterwards; that whatever
// interrupts a build leaves the environment of before usable; and that an unchanged one is recognised from
// bytes alone, without network, Python or a solve.
package envbuild
