package envbuild

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The pixi that is fetched where the machine has none.
const pixiVersion = "0.75.0"

// pixiArchive is a release archive with its SHA-256.
type pixiArchive struct{ name, hash string }

var pixiArchives = map[string]pixiArchive{
	"linux/amd64":   {"pixi-x86_64-unknown-linux-musl.tar.gz", "bcd825d62905c29b3c754b71f9cdc9d6f119454398f58330f111a7b6a0de0a3f"},
	"linux/arm64":   {"pixi-aarch64-unknown-linux-musl.tar.gz", "6476588859faa7232def49ff590f199390bd93fae3826617596befc52382724f"},
	"darwin/amd64":  {"pixi-x86_64-apple-darwin.tar.gz", "f129e890366ad5502304c8f863cc5585d82143b64731f36bcd1283a27781097e"},
	"darwin/arm64":  {"pixi-aarch64-apple-darwin.tar.gz", "52a43f9268f3accb7155cf229937f2f5333559b1333615d610362c6151fded66"},
	"windows/amd64": {"pixi-x86_64-pc-windows-msvc.zip", "0c478f9efcb0f8ba984b21c3fa9f484a3d098fc9a46be896f0ac260939ddeaa9"},
}

// pixiFetchTimeout bounds the download of some 30 MB.
const pixiFetchTimeout = 15 * time.Minute

// fetchPixi downloads this platform's archive from <releases>/v<version>/<archive>, through the proxies and with the
// authorities that indexes use, and unpacks the binary to target once its hash is the one in the source.
func fetchPixi(ctx context.Context, indexes *indexes, releases, target string, say func(format string, arguments ...any)) error {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	archive, known := pixiArchives[platform]
	if !known {
		return fmt.Errorf("pixi's project releases none for %s", platform)
	}
	return fetchOnce(ctx, target, func() error {
		address := strings.TrimSuffix(releases, "/") + "/v" + pixiVersion + "/" + archive.name
		say("pixi %s is fetched from %s", pixiVersion, address)
		content, err := download(ctx, indexes, address)
		if err != nil {
			return err
		}
		return unpackPixi(content, archive, target)
	})
}

// download reads one file.
func download(ctx context.Context, indexes *indexes, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pixiFetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("the address %q: %w", address, err)
	}
	client := *indexes.client
	client.Timeout = 0 // the context has the longer limit
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, response.Status)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, fetchLimit))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", address, err)
	}
	return content, nil
}

// unpackPixi verifies an archive and takes its binary out.
func unpackPixi(content []byte, archive pixiArchive, target string) error {
	sum := sha256.Sum256(content)
	if hash := hex.EncodeToString(sum[:]); hash != archive.hash {
		return fmt.Errorf("%s has sha256 %s, pixi %s has %s; it is not used", archive.name, hash, pixiVersion, archive.hash)
	}
	binary, err := archiveMember(content, archive.name, filepath.Base(target))
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", archive.name, err)
	}
	return putProgram(target, binary)
}

// archiveMember reads the file of that name, in whatever folder, from a zip or a compressed tar.
func archiveMember(content []byte, archive, member string) ([]byte, error) {
	if strings.HasSuffix(archive, ".zip") {
		packed, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return nil, err
		}
		for _, file := range packed.File {
			if path.Base(file.Name) != member {
				continue
			}
			reader, err := file.Open()
			if err != nil {
				return nil, err
			}
			defer reader.Close()
			return io.ReadAll(io.LimitReader(reader, fetchLimit))
		}
		return nil, fmt.Errorf("it does not hold %s", member)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	packed := tar.NewReader(unzipped)
	for {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("it does not hold %s", member)
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeReg && path.Base(header.Name) == member {
			return io.ReadAll(io.LimitReader(packed, fetchLimit))
		}
	}
}
