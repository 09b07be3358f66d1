package envbuild

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
)

// indexTimeout bounds one question to an index; connectTimeout the making of the connection.
const (
	indexTimeout   = 60 * time.Second
	connectTimeout = 15 * time.Second
	indexPageLimit = 64 << 20 // bytes of one page; torch's largest has a few hundred KB
)

// unreachableError says that an index could not be spoken to at all, as opposed to what it answered.
type unreachableError struct {
	index string
	cause error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("%s can not be reached: %v", e.index, e.cause)
}
func (e *unreachableError) Unwrap() error { return e.cause }

// indexes asks package indexes which versions they have. One value serves one build: an index that can not be
// reached is asked once.
type indexes struct {
	client *http.Client

	mutex       sync.Mutex
	unreachable map[string]error          // by index, with nil for one that answered
	asked       map[string]*sync.Once     // by index and package
	answers     map[string]map[string]int // by index and package: public version to count of files
	errors      map[string]error
}

func newIndexes() *indexes {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
	transport.TLSHandshakeTimeout = connectTimeout
	return &indexes{
		client:      &http.Client{Transport: transport, Timeout: indexTimeout},
		unreachable: map[string]error{},
		asked:       map[string]*sync.Once{},
		answers:     map[string]map[string]int{},
		errors:      map[string]error{},
	}
}

// close ends idle connections.
func (i *indexes) close() { i.client.CloseIdleConnections() }

// lacks checks that an index has every one of the requirements ("torch==2.10.0"). An *unreachableError means
// that it can not be spoken to; any other error that it has not, or answers wrongly.
func (i *indexes) lacks(ctx context.Context, index string, requirements []string) error {
	for _, requirement := range requirements {
		name, version, _ := strings.Cut(requirement, "==")
		versions, err := i.versions(ctx, index, name)
		if err != nil {
			return err
		}
		if versions[version] == 0 {
			return fmt.Errorf("the index %s has %s, but no version %s of it; build it for a torch that this index has, or set another torch index", index, name, version)
		}
	}
	return nil
}

// versions is the answer of an index for one package, asked once.
func (i *indexes) versions(ctx context.Context, index, name string) (map[string]int, error) {
	key := index + " " + name
	i.mutex.Lock()
	if err := i.unreachable[index]; err != nil {
		i.mutex.Unlock()
		return nil, err
	}
	once := i.asked[key]
	if once == nil {
		once = &sync.Once{}
		i.asked[key] = once
	}
	i.mutex.Unlock()
	once.Do(func() {
		versions, err := i.ask(ctx, index, name)
		i.mutex.Lock()
		defer i.mutex.Unlock()
		i.answers[key], i.errors[key] = versions, err
		var unreachable *unreachableError
		if errors.As(err, &unreachable) {
			i.unreachable[index] = err
		}
	})
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.answers[key], i.errors[key]
}

// ask fetches a package's page of a simple index.
func (i *indexes) ask(ctx context.Context, index, name string) (map[string]int, error) {
	address, err := url.Parse(index)
	if err != nil {
		return nil, fmt.Errorf("the index %q is no URL: %w", index, err)
	}
	if address.Scheme == "file" || address.Scheme == "" {
		return nil, fmt.Errorf("the index %q is no URL; write it with https://", index)
	}
	address.Path = path.Join(address.Path, normalizeName(name)) + "/"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("the index %q: %w", index, err)
	}
	request.Header.Set("Accept", "application/vnd.pypi.simple.v1+json, text/html;q=0.5")
	response, err := i.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, i.transportError(index, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, indexPageLimit))
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, i.transportError(index, err)
	}
	switch code := response.StatusCode; {
	case code == http.StatusOK:
		return fileVersions(name, response.Header.Get("Content-Type"), body)
	case code == http.StatusNotFound || code == http.StatusGone, code == http.StatusForbidden: // S3 says 403 for what is not there
		return nil, fmt.Errorf("the index %s has no package %s (HTTP %d for %s)", index, name, code, redacted(address))
	case i.proxied(request) && (code == http.StatusProxyAuthRequired || code == http.StatusBadGateway ||
		code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout):
		return nil, &unreachableError{index, fmt.Errorf("the proxy answers HTTP %d", code)}
	default:
		return nil, fmt.Errorf("the index %s answers HTTP %d for %s", index, code, redacted(address))
	}
}

// proxied reports whether a request goes through a plain HTTP proxy, whose own errors look like answers.
func (i *indexes) proxied(request *http.Request) bool {
	transport, ok := i.client.Transport.(*http.Transport)
	if !ok || transport.Proxy == nil || request.URL.Scheme != "http" {
		return false
	}
	proxy, err := transport.Proxy(request)
	return err == nil && proxy != nil
}

// transportError tells an index that can not be reached from one whose certificate is not trusted, which is a
// matter of this machine's settings and must not silently change where packages come from.
func (i *indexes) transportError(index string, err error) error {
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	if errors.As(err, &unknown) || errors.As(err, &hostname) || errors.As(err, &invalid) || errors.As(err, &verification) {
		return fmt.Errorf("the certificate of %s is not trusted: %w; name your authority's file with SSL_CERT_FILE", index, err)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &unreachableError{index, err}
}

// redacted is an address without its password.
func redacted(address *url.URL) string { return address.Redacted() }

var anchorPattern = regexp.MustCompile(`(?is)<a\b[^>]*>(.*?)</a>`)

// fileVersions counts the files of each public version that a simple index lists, in its HTML or JSON form.
func fileVersions(name, contentType string, body []byte) (map[string]int, error) {
	var files []string
	if strings.Contains(contentType, "json") {
		var page struct {
			Files []struct {
				Filename string `json:"filename"`
			} `json:"files"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("the index's page of %s: %w", name, err)
		}
		for _, file := range page.Files {
			files = append(files, file.Filename)
		}
	} else {
		for _, match := range anchorPattern.FindAllSubmatch(body, -1) {
			files = append(files, strings.TrimSpace(html.UnescapeString(string(match[1]))))
		}
	}
	versions := map[string]int{}
	for _, file := range files {
		if decoded, err := url.PathUnescape(file); err == nil {
			file = decoded
		}
		if !strings.HasSuffix(file, ".whl") {
			continue
		}
		distribution, rest, found := strings.Cut(file, "-")
		version, _, more := strings.Cut(rest, "-")
		if found && more && normalizeName(distribution) == normalizeName(name) {
			versions[publicVersion(version)]++
		}
	}
	return versions, nil
}
