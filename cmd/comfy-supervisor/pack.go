package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
)

// packFlags are the flags of pack.
type packFlags struct {
	output  string
	comfyui string
	json    bool
}

func newPackCommand(app *application) *cobra.Command {
	var flags packFlags
	command := &cobra.Command{
		Use:   "pack ENVIRONMENT...",
		Short: "Write built environments to tarballs, for machines without a network",
		Long: `Writes each environment to a tarball that holds its packages, its lock file, its stamp and the hash of every file.
unpack makes it the environment of the same pack on another machine of the same platform, without a network and
without an installer; it needs a Python of the environment's version there, in whatever folder. The pack itself is
not in the tarball.

NAME@STACK picks one of several stacks. A file whose name ends in .tar is not compressed.`,
		Example: `  comfy-supervisor pack sample-nodes
  comfy-supervisor pack sample-nodes --output /mnt/farm/sample.tar
  comfy-supervisor pack sample-nodes@py312-torch2.10-cu128 other-nodes --output /mnt/farm`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, names []string) error {
			return app.pack(command.Context(), flags, names)
		},
	}
	command.Flags().StringVarP(&flags.output, "output", "o", "", "file, or folder of several (default: NAME_STACK.tar.gz in the folder you are in)")
	command.Flags().StringVar(&flags.comfyui, "comfyui", "", "ComfyUI's folder, whose packs come first where a name stands for several")
	command.Flags().BoolVar(&flags.json, "json", false, "print JSON")
	return command
}

// pack carries the command out.
func (app *application) pack(ctx context.Context, flags packFlags, names []string) error {
	folder := flags.output == ""
	if info, err := os.Stat(flags.output); flags.output != "" {
		folder = err == nil && info.IsDir()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return usageErrorf("--output %s: %w", flags.output, err)
		}
	}
	lower := strings.ToLower(flags.output)
	switch {
	case folder:
	case len(names) > 1:
		return usageErrorf("--output %s is no folder, and %d environments are to be packed", flags.output, len(names))
	case !strings.HasSuffix(lower, ".tar") && !strings.HasSuffix(lower, ".tar.gz") && !strings.HasSuffix(lower, ".tgz"):
		return usageErrorf("--output %s: the name must end in .tar, .tar.gz or .tgz, or be that of a folder", flags.output)
	}
	loaded, err := app.loadSettings(nil)
	if err != nil {
		return err
	}
	store, err := envbuild.OpenStore(loaded.EnvironmentRoot.Value)
	if err != nil {
		return err
	}
	query := envbuild.Query{}
	if flags.comfyui != "" {
		if query.ComfyUI, err = filepath.Abs(flags.comfyui); err != nil {
			return usageErrorf("resolving %s: %w", flags.comfyui, err)
		}
	}
	packed := []envbuild.Packed{}
	for _, name := range names {
		plain, stack, chosen := strings.Cut(name, "@")
		query.Stack, query.AnyStack = stack, !chosen
		environment, err := store.Find(plain, query)
		if err != nil {
			return err
		}
		file := flags.output
		if folder {
			file = filepath.Join(flags.output, envbuild.PackName(environment))
		}
		one, err := store.Pack(ctx, environment, file)
		if err != nil {
			return err
		}
		packed = append(packed, one)
		if !flags.json {
			fmt.Fprintf(app.stdout, "%s (%s): %s in %s, sha256 %s\n", one.Environment, one.Stack, size(one.Bytes), one.File, one.SHA256)
		}
	}
	if flags.json {
		return app.printJSON(packed)
	}
	return nil
}
