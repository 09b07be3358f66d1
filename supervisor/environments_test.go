//go:build unix

package supervisor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
)

func TestAListOfEnvironmentsThatIsLongerThanAMessageComesWhole(t *testing.T) {
	options := newTestOptions(t)
	folder := "/" + strings.Repeat("folder/", 100)
	for i := range 3000 {
		options.Environments = append(options.Environments, envbuild.Environment{Name: fmt.Sprintf("listed-%04d", i), PackDirectory: folder})
	}
	startDaemon(t, options)
	list, err := connectOperator(t, options).Environments(testContext(t))
	if err != nil || len(list) != len(options.Environments) {
		t.Fatalf("%d of %d environments: %v", len(list), len(options.Environments), err)
	}
	for i, environment := range list {
		if environment.Name != options.Environments[i].Name {
			t.Fatalf("number %d is %s, want %s", i, environment.Name, options.Environments[i].Name)
		}
	}
}
