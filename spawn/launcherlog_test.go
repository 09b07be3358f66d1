package spawn

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestALaunchersLogKeepsItsEndWithinBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), launcherLogName)
	var last string
	for start := range 3 { // one launcher after another, as it were
		log, err := openLauncherLog(path)
		if err != nil {
			t.Fatal(err)
		}
		for number := range 10000 {
			last = fmt.Sprintf("launcher %d, line %d %s\n", start, number, strings.Repeat("x", 100))
			if _, err := log.Write([]byte(last)); err != nil {
				t.Fatal(err)
			}
		}
		info, err := log.file.Stat()
		if err != nil || info.Size() > launcherLogBytes {
			t.Errorf("%d bytes, %v", info.Size(), err)
		}
		log.file.Close()
	}
	content, err := os.ReadFile(path)
	if err != nil || !bytes.HasSuffix(content, []byte(last)) || len(content) < launcherLogKeptBytes {
		t.Errorf("%d bytes, ending with %.40q: %v", len(content), content[len(content)-len(last):], err)
	}
}
