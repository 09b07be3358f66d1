package envbuild

import (
	"testing"
	"time"
)

func TestAnInstallationIsWaitedForAsLongAsItDownloads(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		lines []string
		last  string // the line after which nobody waits any more
	}{
		"downloads":                      {[]string{"Downloading torch (873.1MiB)", "Downloading triton (160.0MiB)", "Downloaded triton"}, "Downloaded torch"},
		"downloads beside a compilation": {[]string{"Building slow==1.0", "Downloading torch (873.1MiB)"}, "Downloaded torch"},
		"small files":                    {[]string{"Resolved 3 packages in 1ms"}, "Prepared 3 packages in 2ms"},
		"a small file of another name":   {[]string{"Downloading torch (873.1MiB)", "Downloaded small"}, "Downloaded torch"},
	} {
		left := 0
		watch := downloadWatch{leave: func() { left++ }, settled: time.Hour}
		for _, line := range one.lines {
			watch.line(line)
		}
		if left > 0 {
			t.Errorf("%s: it is left too early", name)
		}
		watch.line(one.last)
		if left != 1 {
			t.Errorf("%s: it is not left after %q", name, one.last)
		}
		watch.close()
	}
	compiling := make(chan struct{})
	watch := downloadWatch{leave: func() { close(compiling) }}
	if text := watch.line("Building slow==1.0"); text != "compiling slow==1.0" {
		t.Errorf("%q", text)
	}
	<-compiling // downloads nothing
	watch.close()
	alone := downloadWatch{}
	if text := alone.line("Prepared 3 packages in 2ms"); text != "linking" {
		t.Errorf("%q", text)
	}
}
