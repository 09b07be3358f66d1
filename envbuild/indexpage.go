package envbuild

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpproxy"
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

// absentError says that an index answered, and does not have a package.
type absentError struct {
	index, name string
	code        int
	address     string
}

func (e *absentError) Error() string {
	return fmt.Sprintf("the index %s has no package %s (HTTP %d for %s)", e.index, e.name, e.code, e.address)
}

// indexes asks package indexes what they have. One value serves one build: each page is asked for once, and an
// index that can not be reached is asked once at all.
type indexes struct {
	client *http.Client

	mutex       sync.Mutex
	unreachable map[string]error // by index
	pages       map[string]*indexPage
}

// indexPage is a package's page of a simple index.
type indexPage struct {
	once    sync.Once
	err     error
	address *url.URL
	links   []indexLink
}

// indexLink is one file on a page: the name that is shown, where it leads, and the hash where the JSON form
// tells one.
type indexLink struct{ name, target, hash string }

// newIndexes speaks to indexes as the installer does: through the proxies and with the certificate authorities that
// its variables name.
func newIndexes(environ []string) (*indexes, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
	transport.TLSHandshakeTimeout = connectTimeout
	value := func(name string) string {
		return cmp.Or(environValue(environ, name), environValue(environ, strings.ToLower(name)))
	}
	proxies := httpproxy.Config{HTTPProxy: cmp.Or(value("HTTP_PROXY"), value("ALL_PROXY")),
		HTTPSProxy: cmp.Or(value("HTTPS_PROXY"), value("ALL_PROXY")), NoProxy: value("NO_PROXY")}
	choose := proxies.ProxyFunc()
	transport.Proxy = func(request *http.Request) (*url.URL, error) { return choose(request.URL) }
	if file := environValue(environ, "SSL_CERT_FILE"); file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authorities: %w; SSL_CERT_FILE or pip's cert names the file", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("%s holds no certificate; SSL_CERT_FILE or pip's cert names the file", file)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return &indexes{
		client:      &http.Client{Transport: transport, Timeout: indexTimeout},
		unreachable: map[string]error{},
		pages:       map[string]*indexPage{},
	}, nil
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
		if !slices.ContainsFunc(slices.Collect(maps.Keys(versions)), func(one string) bool { return isExactly(one, version) }) {
			return fmt.Errorf("the index %s has %s, but no version %s of it; build it for a torch that this index has, or set another torch index", index, name, version)
		}
	}
	return nil
}

// versions counts the wheels of each public version that an index has of a package.
func (i *indexes) versions(ctx context.Context, index, name string) (map[string]int, error) {
	page, err := i.page(ctx, index, normalizeName(name))
	if err != nil {
		return nil, err
	}
	return fileVersions(name, page.links), nil
}

// page is the answer of an index for one package, asked once.
func (i *indexes) page(ctx context.Context, index, name string) (*indexPage, error) {
	i.mutex.Lock()
	if err := i.unreachable[index]; err != nil {
		i.mutex.Unlock()
		return nil, err
	}
	page := i.pages[index+" "+name]
	if page == nil {
		page = &indexPage{}
		i.pages[index+" "+name] = page
	}
	i.mutex.Unlock()
	page.once.Do(func() {
		page.err = i.ask(ctx, page, index, name)
		var unreachable *unreachableError
		if errors.As(page.err, &unreachable) {
			i.mutex.Lock()
			defer i.mutex.Unlock()
			i.unreachable[index] = page.err
		}
	})
	return page, page.err
}

// ask fetches a package's page of a simple index.
func (i *indexes) ask(ctx context.Context, page *indexPage, index, name string) error {
	address, err := url.Parse(index)
	if err != nil {
		return fmt.Errorf("the index %q is no URL: %w", index, err)
	}
	if address.Scheme != "http" && address.Scheme != "https" {
		return fmt.Errorf("the index %q is no URL; write it with https://", index)
	}
	address.Path = path.Join("/", address.Path, name) + "/"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return fmt.Errorf("the index %q: %w", index, err)
	}
	request.Header.Set("Accept", "application/vnd.pypi.simple.v1+json, text/html;q=0.5")
	response, err := i.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return i.transportError(index, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, indexPageLimit))
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return i.transportError(index, err)
	}
	switch code := response.StatusCode; {
	case code == http.StatusOK:
		page.address = response.Request.URL // after redirections
		page.links, err = pageLinks(response.Header.Get("Content-Type"), body)
		if err != nil {
			return fmt.Errorf("the page of %s on %s: %w", name, index, err)
		}
		return nil
	case code == http.StatusNotFound || code == http.StatusGone, code == http.StatusForbidden: // S3 says 403 for what is not there
		return &absentError{index, name, code, redacted(address)}
	case i.proxied(request) && (code == http.StatusProxyAuthRequired || code == http.StatusBadGateway ||
		code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout):
		return &unreachableError{index, fmt.Errorf("the proxy answers HTTP %d", code)}
	default:
		return fmt.Errorf("the index %s answers HTTP %d for %s", index, code, redacted(address))
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

var (
	anchorPattern = regexp.MustCompile(`(?is)<a\b([^>]*)>(.*?)</a>`)
	targetPattern = regexp.MustCompile(`(?is)\bhref\s*=\s*(?:"([^"]*)"|'([^']*)')`)
)

// pageLinks reads the files of a simple index's page, in its HTML or JSON form.
func pageLinks(contentType string, body []byte) ([]indexLink, error) {
	var links []indexLink
	if strings.Contains(contentType, "json") {
		var page struct {
			Files []struct {
				Filename string            `json:"filename"`
				URL      string            `json:"url"`
				Hashes   map[string]string `json:"hashes"`
			} `json:"files"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, err
		}
		for _, file := range page.Files {
			links = append(links, indexLink{name: file.Filename, target: file.URL, hash: file.Hashes["sha256"]})
		}
		return links, nil
	}
	for _, match := range anchorPattern.FindAllSubmatch(body, -1) {
		target := targetPattern.FindSubmatch(match[1])
		if target == nil {
			continue
		}
		links = append(links, indexLink{
			name:   strings.TrimSpace(html.UnescapeString(string(match[2]))),
			target: html.UnescapeString(string(target[1]) + string(target[2])),
		})
	}
	return links, nil
}

// companions are the requirements of a wheel, a torch of one build kind, that only that build's index has: its
// compiler, for the makes of card for which it is not on the default index.
func (i *indexes) companions(ctx context.Context, index, name, version, python, platform string) ([]string, error) {
	page, err := i.page(ctx, index, name)
	if err != nil {
		return nil, err
	}
	for _, link := range page.links {
		file := link.name
		if decoded, err := url.PathUnescape(file); err == nil {
			file = decoded
		}
		parts, ok := splitWheel(file)
		if !ok || !isExactly(parts.version, version) || !pythonFits(parts.python, parts.abi, python) || !platformFits(parts.platform, platform) {
			continue
		}
		address, err := page.address.Parse(link.target)
		if err != nil {
			return nil, fmt.Errorf("the link of %s on %s: %w", file, index, err)
		}
		address.Fragment = ""
		address.Path += ".metadata"
		address.RawPath = ""
		return i.requirements(ctx, index, address)
	}
	return nil, nil
}

// requirements reads which compilers a wheel's metadata requires. An index that does not offer metadata by itself
// names none.
func (i *indexes) requirements(ctx context.Context, index string, address *url.URL) ([]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("the metadata %s: %w", redacted(address), err)
	}
	response, err := i.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, i.transportError(index, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, indexPageLimit))
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, nil
	}
	var names []string
	for line := range strings.Lines(string(body)) {
		requirement, found := strings.CutPrefix(line, "Requires-Dist:")
		if name := RequirementName(strings.TrimSpace(requirement)); found && strings.Contains(name, "triton") {
			names = append(names, name)
		}
	}
	return slices.Compact(names), nil
}

// fileVersions counts the wheels of each public version.
func fileVersions(name string, links []indexLink) map[string]int {
	versions := map[string]int{}
	for _, link := range links {
		file := link.name
		if decoded, err := url.PathUnescape(file); err == nil {
			file = decoded
		}
		distribution, rest, found := strings.Cut(file, "-")
		version, _, more := strings.Cut(rest, "-")
		if found && more && strings.HasSuffix(file, ".whl") && normalizeName(distribution) == normalizeName(name) {
			versions[publicVersion(version)]++
		}
	}
	return versions
}
