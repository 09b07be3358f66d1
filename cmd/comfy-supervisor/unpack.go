package main

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// unpackFlags are the flags of unpack.
type unpackFlags struct {
	build buildFlags
	packs []string
	sum   string
}

func newUnpackCommand(app *application) *cobra.Command {
	var flags unpackFlags
	command := &cobra.Command{
		Use:   "unpack FILE...",
		Short: "Make packed environments those of the same packs on this machine",
		Long: `Takes tarballs that pack has written. Each becomes the environment of the pack with its name, among the packs named
with --pack or those of --comfyui, as if it had been built here: only where the manifest, the host's Python and torch,
and the platform are those it was built for. Nothing is downloaded; every file is held against its hash first.

Exit code: 0 unpacked or there already, 1 something failed, 2 wrong command line or manifest.`,
		Example: `  comfy-supervisor unpack /mnt/farm/*.tar.gz --comfyui ~/ComfyUI
  comfy-supervisor unpack sample-nodes_py312-torch2.10-cu128.tar.gz --pack custom_nodes/ComfyUI-Sample --python .venv/bin/python`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, files []string) error {
			return app.unpack(command.Context(), flags, files)
		},
	}
	flags.build.host.register(command)
	command.Flags().StringSliceVar(&flags.packs, "pack", nil, "pack folder; may be given several times")
	command.Flags().StringVar(&flags.sum, "sha256", "", "hash that the file must have")
	command.Flags().StringVar(&flags.build.backend, "backend", "", "auto, uv or pixi, as it was built with")
	command.Flags().BoolVar(&flags.build.json, "json", false, "print one JSON object a line: events, then the results")
	command.Flags().BoolVar(&flags.build.quiet, "quiet", false, "print errors only")
	return command
}

// unpack carries the command out.
func (app *application) unpack(ctx context.Context, flags unpackFlags, files []string) error {
	if len(flags.packs) == 0 && flags.build.host.comfyui == "" {
		return usageErrorf("whose environments are these: name pack folders with --pack, or a ComfyUI with --comfyui")
	}
	if flags.sum != "" {
		if sum, err := hex.DecodeString(flags.sum); err != nil || len(sum) != 32 {
			return usageErrorf("--sha256 %q is no SHA-256: it has 64 digits from 0 to f", flags.sum)
		}
		if len(files) > 1 {
			return usageErrorf("--sha256 is of one file, and %d are named", len(files))
		}
	}
	loaded, err := app.loadSettings(map[string]string{"backend": flags.build.backend})
	if err != nil {
		return err
	}
	folders, err := packFolders(flags.packs)
	if err != nil {
		return err
	}
	facts, err := flags.build.host.read(ctx, app, loaded)
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		folders = []string{facts.ComfyUI.Directory}
	}
	work, problems := envbuild.Discover(folders, facts.Platform)
	printDiagnostics(app.stderr, problems)
	if manifest.HasErrors(problems) {
		return &exitError{code: exitUsage}
	}
	progress := newProgress(app, flags.build.json, flags.build.quiet)
	builder, err := envbuild.NewBuilder(buildConfiguration(app, loaded, 1, progress.event), facts)
	if err != nil {
		return err
	}
	defer builder.Close()
	begin := time.Now()
	var results []envbuild.Result
	for _, file := range files {
		results = append(results, builder.Unpack(ctx, work, file, flags.sum))
	}
	progress.close()
	return app.reportBuild(flags.build, results, time.Since(begin))
}
