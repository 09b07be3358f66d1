//go:build torch

package hostadapter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// addPacks puts packs of the archive into a ComfyUI.
func (i *installation) addPacks(t *testing.T, names ...string) {
	t.Helper()
	archive, err := txtar.ParseFile("../../testdata/packs/faults.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		found := false
		for _, file := range archive.Files {
			if strings.HasPrefix(file.Name, name+"/") {
				found = true
				write(t, filepath.Join(i.folder, "custom_nodes", file.Name), string(file.Data))
			}
		}
		if !found {
			t.Fatalf("there is no pack %s", name)
		}
	}
}

// graph is a prompt by node.
type graph map[string]node

type node struct {
	Class  string         `json:"class_type"`
	Inputs map[string]any `json:"inputs"`
}

// shown is a prompt that shows what the last of some nodes returns; they are numbered from 1.
func shown(nodes ...node) graph {
	made := graph{"show": {"PreviewAny", map[string]any{"source": []any{strconv.Itoa(len(nodes)), 0}}}}
	for at, one := range nodes {
		if one.Inputs == nil {
			one.Inputs = map[string]any{}
		}
		made[strconv.Itoa(at+1)] = one
	}
	return made
}

// outcome is what became of a prompt.
type outcome struct {
	Status struct {
		Text     string  `json:"status_str"`
		Messages [][]any `json:"messages"`
	} `json:"status"`
	Outputs map[string]map[string][]any `json:"outputs"`
}

// text is what a prompt's end showed.
func (o outcome) text() string {
	if shown := o.Outputs["show"]["text"]; len(shown) == 1 {
		return fmt.Sprint(shown[0])
	}
	return ""
}

// failure is the message of the node that failed.
func (o outcome) failure() string {
	for _, message := range o.Status.Messages {
		if message[0] == "execution_error" {
			return fmt.Sprint(message[1].(map[string]any)["exception_message"])
		}
	}
	return ""
}

func (s *server) http(t testing.TB, method, path string, body any) (int, []byte) {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("http://127.0.0.1:%d%s", s.port, path), bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", method, path, err, s.said(t))
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, said
}

// submit has ComfyUI run a prompt.
func (s *server) submit(t testing.TB, prompt graph) (id string) {
	t.Helper()
	status, said := s.http(t, http.MethodPost, "/prompt", map[string]any{"prompt": prompt})
	var answer struct {
		ID string `json:"prompt_id"`
	}
	if err := json.Unmarshal(said, &answer); err != nil || status != http.StatusOK {
		t.Fatalf("the prompt was refused with %d: %s\n%s", status, said, s.said(t))
	}
	return answer.ID
}

// await waits for the end of a prompt. ComfyUI tells it to websockets, which need no library here: its history is asked.
func (s *server) await(t testing.TB, id string, limit time.Duration) outcome {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); <-ticker.C {
		_, said := s.http(t, http.MethodGet, "/history/"+id, nil)
		var history map[string]outcome
		if err := json.Unmarshal(said, &history); err != nil {
			t.Fatalf("the history is %s: %v", said, err)
		}
		if found, over := history[id]; over {
			return found
		}
	}
	t.Fatalf("the prompt did not end within %s\n%s", limit, s.said(t))
	return outcome{}
}

func (s *server) run(t testing.TB, prompt graph) outcome {
	t.Helper()
	return s.await(t, s.submit(t, prompt), time.Minute)
}

// pipe is a named pipe that a node writes its process's number into when it begins.
func pipe(t testing.TB) (path string, begun <-chan int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	number := make(chan int, 1)
	go func() {
		defer close(number)
		text, err := os.ReadFile(path)
		if err != nil {
			return
		}
		if pid, err := strconv.Atoi(string(text)); err == nil {
			number <- pid
		}
	}()
	t.Cleanup(func() { // lets a reader go that nobody wrote to
		if file, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = file.Close()
		}
	})
	return path, number
}

func receive(t testing.TB, s *server, begun <-chan int) int {
	t.Helper()
	select {
	case pid := <-begun:
		if pid != 0 {
			return pid
		}
	case <-s.over:
	case <-time.After(time.Minute):
	}
	t.Fatalf("the node did not begin\n%s", s.said(t))
	return 0
}

// awaitEnd waits for the end of a process that is no child of this one.
func awaitEnd(t testing.TB, pid int) {
	t.Helper()
	watch, err := spawn.WatchProcess(spawn.Process{PID: pid})
	if errors.Is(err, spawn.ErrProcessGone) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	select {
	case <-watch.Done():
	case <-time.After(time.Minute):
		t.Errorf("process %d goes on", pid)
	}
}

// family watches the processes of the worker that has a Python: its launcher, that Python, and what it has started.
func (i *installation) family(t *testing.T, python int) []*spawn.Watch {
	t.Helper()
	pids := []int{python}
	for _, worker := range i.status(t).Workers {
		if worker.PythonPID == python {
			pids = append(pids, worker.LauncherPID)
		}
	}
	started, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", python))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range started {
		said, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		for _, field := range strings.Fields(string(said)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	if len(pids) != 3 {
		t.Fatalf("the worker, its launcher and its helper are processes %v", pids)
	}
	var watches []*spawn.Watch
	for _, pid := range pids {
		watch, err := spawn.WatchProcess(spawn.Process{PID: pid})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watch.Close)
		watches = append(watches, watch)
	}
	return watches
}

func (i *installation) status(t testing.TB) api.Status {
	t.Helper()
	command := i.command(t.Context(), "status", "--json")
	said, err := command.Output()
	if err != nil {
		t.Fatalf("status: %v\n%s", err, said)
	}
	var status api.Status
	if err := json.Unmarshal(said, &status); err != nil {
		t.Fatalf("status printed %s: %v", said, err)
	}
	return status
}

// line finds a line of ComfyUI's log.
func (s *server) line(t *testing.T, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^.*` + pattern + `.*$`).FindString(s.said(t))
	if found == "" {
		t.Errorf("no line of ComfyUI's log is like %q", pattern)
	}
	return found
}

func TestComfyUIStartsWhateverIsWrongWithItsPacks(t *testing.T) {
	t.Parallel()
	made := install(t)
	wrong := []string{"raises", "hangs", "noisy", "unsendable", "without_serializer", "bad_serializer", "twin", "ComfyUI-Twin", "unbuilt", "backends"}
	made.addPacks(t, append(wrong, "faults")...)
	write(t, filepath.Join(made.folder, "custom_nodes", "unbuilt", "nodes", "comfy-env.toml"), "python = \"of any kind\"\n")
	manifest, err := os.ReadFile("../../testdata/packs/contract/nodes/comfy-env.toml") // the executor's modules need as much
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(made.folder, "custom_nodes", "backends", "nodes", "comfy-env.toml"), string(manifest))
	made.environ = append(made.environ, "COMFY_SUPERVISOR_SCAN=20s", "COMFY_SUPERVISOR_START=5s")
	running := made.startBy(t, made.environ, []string{made.binary, "run", "--", made.python, "main.py"})
	t.Run("an import that raises", func(t *testing.T) {
		t.Log(running.line(t, `\[raises\].*libodd\.so\.3: cannot open shared object file`))
	})
	t.Run("an import that hangs", func(t *testing.T) {
		t.Log(running.line(t, `\[hangs\].*was not ready after 20s; .*its import was at nodes/endless\.py, line 3, in <module>`))
	})
	t.Run("ten megabytes of output", func(t *testing.T) {
		if text := running.run(t, shown(node{"FaultsQuiet", nil})).text(); text != "quiet after all" {
			t.Errorf("the node said %q", text)
		}
	})
	t.Run("input types that can not be sent", func(t *testing.T) {
		if text := running.run(t, shown(node{"FaultsOdd", map[string]any{"lock": "crossed"}})).text(); text != "crossed" {
			t.Errorf("the node said %q", text)
		}
		status, said := running.http(t, http.MethodGet, "/object_info/FaultsOdd", nil)
		if status != http.StatusOK || !strings.Contains(string(said), `"default": "kept"`) {
			t.Errorf("object_info answers %d: %s", status, said)
		}
		t.Log(string(said))
	})
	t.Run("input types that raise", func(t *testing.T) {
		status, _ := running.http(t, http.MethodGet, "/object_info", nil)
		if status != http.StatusOK {
			t.Errorf("object_info answers %d", status)
		}
		t.Log(running.line(t, "models/odd is not there"))
	})
	t.Run("a serializer module that registers nothing, and one that can not be imported", func(t *testing.T) {
		for class, want := range map[string]string{"FaultsPlain": "plain", "FaultsPlainToo": "plain, too"} {
			if text := running.run(t, shown(node{class, nil})).text(); text != want {
				t.Errorf("%s said %q", class, text)
			}
		}
		t.Log(running.line(t, "without_serializer.*registers no serializer"))
		t.Log(running.line(t, "a_module_that_nobody_has"))
	})
	t.Run("a node for other machines, and a provider for the executor", func(t *testing.T) {
		failed := running.run(t, shown(node{"FaultsCard", nil})).failure()
		if !strings.Contains(failed, "FaultsCard needs cuda or mps, which this machine does not have") {
			t.Errorf("the node's error is %q", failed)
		}
		if text := running.run(t, shown(node{"FaultsProcessor", nil})).text(); text != "on the card" {
			t.Errorf("a node that needs nothing said %q", text)
		}
		t.Log(running.line(t, `\[backends\].*the cache provider .*\.Provider is not used`))
	})
	t.Run("two packs of one name", func(t *testing.T) {
		if text := running.run(t, shown(node{"FaultsTwinOfComfyUI", nil})).text(); text != "the twin of ComfyUI" {
			t.Errorf("the first twin said %q", text)
		}
		t.Log(running.line(t, `already derived from`))
		t.Log(running.line(t, `\[twin\].*is not built`))
	})
	t.Run("an environment that is not built", func(t *testing.T) {
		line := running.line(t, `\[unbuilt\].*its environment is not built: run .* build --comfyui `)
		t.Log(line)
		if strings.Count(running.said(t), "[unbuilt]") != 1 {
			t.Errorf("it is not one line that says so:\n%s", running.said(t))
		}
	})
	t.Run("a pack beside them", func(t *testing.T) {
		if text := running.run(t, shown(node{"FaultsWork", map[string]any{"pipe": "", "seconds": 0.0}})).text(); text == "" {
			t.Error("it does not work")
		}
	})
	if t.Failed() {
		t.Log(regexp.MustCompile(`(?m)^.*(noise \d|xxxx).*\n`).ReplaceAllString(running.said(t), ""))
	}
}

func TestPacksWhoseEnvironmentIsGoneShowTheirNodesAndSayWhatToDo(t *testing.T) {
	t.Parallel()
	made := install(t)
	made.addPacks(t, "unbuilt")
	made.start(t, made.use(t)).stop(t)
	must(t, made.command(t.Context(), "stop", "--all"))
	made.environ = append(made.environ, "COMFY_ENV_ROOT="+t.TempDir())
	where := shown(node{"FaultsWhere", nil})

	running := made.startBy(t, made.environ, []string{made.binary, "run", "--no-build", "--", made.python, "main.py"})
	said := running.line(t, `\[unbuilt\] its environment is not built: run .* build --comfyui`)
	failed := running.run(t, where).failure()
	if !strings.HasPrefix(failed, "its environment is not built: run ") || !strings.Contains(said, strings.TrimSpace(failed)) {
		t.Errorf("the node's error is %q, the line of the start %q\n%s", failed, said, running.said(t))
	}
	running.stop(t)

	made.environ = append(made.environ, "COMFY_SUPERVISOR_FALLBACK=host")
	running = made.startBy(t, made.environ, []string{made.binary, "run", "--no-build", "--", made.python, "main.py"})
	if text := running.run(t, where).text(); text != fmt.Sprintf("ran in %d", running.command.Process.Pid) {
		t.Errorf("with fallback = host the node %s; ComfyUI is %d\n%s", text, running.command.Process.Pid, running.said(t))
	}
}

func TestAWorkerThatIsKilledInMidPromptFailsItsNodeAndTheNextPromptWorks(t *testing.T) {
	t.Parallel()
	made := install(t)
	made.addPacks(t, "faults")
	running := made.start(t, made.use(t))
	asked := filepath.Join(t.TempDir(), "asked")
	run := func(prompt graph) outcome { // beside a node whose output stays good; it is in every prompt, or ComfyUI forgets it
		prompt["once"] = node{"FaultsOnce", map[string]any{"asked": asked}}
		prompt["made"] = node{"PreviewAny", map[string]any{"source": []any{"once", 0}}}
		return running.run(t, prompt)
	}
	use := func(text string) outcome {
		return run(shown(node{"FaultsLoad", map[string]any{"name": "m"}}, node{"FaultsUse", map[string]any{"model": []any{"1", 0}, "text": text}}))
	}
	loads := regexp.MustCompile(`loaded (\d+) times by (\d+)`)
	first := loads.FindStringSubmatch(use("a").text())
	if first == nil || first[1] != "1" {
		t.Fatalf("the model is %q\n%s", use("a").text(), running.said(t))
	}
	for how, want := range map[string]string{"killed": "SIGKILL", "invalid access": "SIGSEGV", "exit": "exit code 3"} {
		before := loads.FindStringSubmatch(use("before " + how).text())
		failed := run(shown(node{"FaultsEnd", map[string]any{"how": how}})).failure()
		t.Log(failed)
		if !strings.Contains(failed, want) || !strings.Contains(failed, "the last words before "+how) {
			t.Errorf("a worker that ended by %q: the node's error is %q", how, failed)
		}
		after := loads.FindStringSubmatch(use("after " + how).text())
		if before == nil || after == nil || after[1] != "1" || after[2] == before[2] {
			t.Errorf("after %q the model is %q, before it was %q\n%s", how, after, before, running.said(t))
		}
		ended := use("again after " + how)
		if again := loads.FindStringSubmatch(ended.text()); again == nil || again[1] != "1" {
			t.Errorf("the model of a worker that lives was loaded again: %q", again)
		}
		// What is no object of the worker's stays good: the new worker is asked whether it changed, and it is not made again.
		if now := fmt.Sprint(ended.Outputs["made"]["text"]...); now != "made by "+first[2] {
			t.Errorf("after %q an output that never changes is %q, want that of process %s", how, now, first[2])
		}
		if said, err := os.ReadFile(asked); err != nil || string(said) != "asked "+after[2] {
			t.Errorf("%q was asked, want process %s: %v", said, after[2], err)
		}
	}
}

func TestAPromptDuringTheEndOfTheSupervisorEndsAndTheNextOneWorks(t *testing.T) {
	t.Parallel()
	made := install(t)
	made.addPacks(t, "faults")
	running := made.start(t, made.use(t))
	path, begun := pipe(t)
	id := running.submit(t, shown(node{"FaultsWork", map[string]any{"pipe": path, "seconds": 3.0}}))
	worker := receive(t, running, begun)
	supervisor := made.status(t).Supervisor.PID
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	finished := running.await(t, id, time.Minute)
	t.Logf("the prompt ended with %s: %q %q", finished.Status.Text, finished.text(), finished.failure())
	switch {
	case finished.text() == strconv.Itoa(worker):
	case strings.Contains(finished.failure(), "supervisor"):
	default:
		t.Errorf("the prompt neither completed nor said what happened: %+v\n%s", finished, running.said(t))
	}
	next := running.run(t, shown(node{"FaultsWork", map[string]any{"pipe": "", "seconds": 0.0}}))
	if next.text() == "" {
		t.Errorf("the next prompt failed: %s\n%s", next.failure(), running.said(t))
	}
	if now := made.status(t).Supervisor.PID; now == supervisor {
		t.Errorf("supervisor %d lives after its end", now)
	}
}

func TestWorkersEndWithTheirComfyUIHoweverItEnds(t *testing.T) {
	t.Parallel()
	made := install(t)
	made.addPacks(t, "faults", "again")
	// Their end is seen, and no time limit waited for.
	made.environ = append(made.environ, "COMFY_SUPERVISOR_RECONNECT=1h", "COMFY_SUPERVISOR_LAUNCHER_ORPHAN=1h")
	environ := made.use(t)
	work := func(path string, seconds float64) graph {
		return shown(node{"FaultsWork", map[string]any{"pipe": path, "seconds": seconds, "helped": path != ""}})
	}
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "terminated": syscall.SIGTERM, "interrupted": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			running := made.start(t, environ)
			path, begun := pipe(t)
			running.submit(t, work(path, 300))
			family := made.family(t, receive(t, running, begun))
			begin := time.Now()
			if err := running.command.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			limit := time.After(time.Minute)
			select {
			case <-running.over:
			case <-limit:
				t.Fatalf("ComfyUI goes on\n%s", running.said(t))
			}
			over := time.Now()
			for _, member := range family {
				select {
				case <-member.Done():
				case <-limit:
					t.Fatalf("%v of its worker goes on\n%s", member.Process(), running.said(t))
				}
			}
			t.Logf("after the signal: ComfyUI gone in %s, the last of the worker's launcher, Python and helper in %s", over.Sub(begin), time.Since(begin))
			if strings.Contains(running.said(t), "Traceback") && signal != syscall.SIGINT {
				t.Errorf("its end is not clean:\n%s", running.said(t))
			}
		})
	}
	t.Run("restarted by exec", func(t *testing.T) { // and at once after the others
		running := made.start(t, environ)
		path, begun := pipe(t)
		running.submit(t, work(path, 300))
		worker := receive(t, running, begun)
		running.again(t)
		awaitEnd(t, worker)
		// Its nodes and routes are those of the scan that is kept.
		status, said := running.http(t, http.MethodGet, "/faults/ping", nil)
		if status != http.StatusOK || !strings.Contains(string(said), `"worker"`) {
			t.Errorf("its route answers %d: %s\n%s", status, said, running.said(t))
		}
		finished := running.run(t, work("", 0))
		if finished.text() == "" || finished.text() == strconv.Itoa(worker) {
			t.Errorf("after the restart: %q %q\n%s", finished.text(), finished.failure(), running.said(t))
		}
	})
}

// again restarts a ComfyUI in place, and waits until it listens.
func (s *server) again(t *testing.T) {
	t.Helper()
	starts := strings.Count(s.said(t), "To see the GUI go to")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/faults/again", s.port), nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(request); err == nil { // it has no time to answer
		_ = response.Body.Close()
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-ticker.C {
		if strings.Count(s.said(t), "To see the GUI go to") > starts {
			return
		}
	}
	t.Fatalf("ComfyUI did not come back\n%s", s.said(t))
}

func TestTwoComfyUIsOfOneMachineHaveWorkersOfTheirOwn(t *testing.T) {
	t.Parallel()
	made := install(t)
	made.addPacks(t, "faults")
	environ := made.use(t)
	first, second := made.start(t, environ), made.start(t, environ, "--database-url", "sqlite:///:memory:")
	var pids []int
	for _, running := range []*server{first, second} {
		path, begun := pipe(t)
		running.submit(t, shown(node{"FaultsWork", map[string]any{"pipe": path, "seconds": 2.0}}))
		pids = append(pids, receive(t, running, begun))
	}
	if pids[0] == pids[1] {
		t.Errorf("both nodes ran in process %d", pids[0])
	}
	if sessions := made.status(t).Sessions; len(sessions) < 2 {
		t.Errorf("the supervisor knows %d sessions", len(sessions))
	}
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.over
	awaitEnd(t, pids[0])
	finished := second.run(t, shown(node{"FaultsWork", map[string]any{"pipe": "", "seconds": 0.0}}))
	if finished.text() != strconv.Itoa(pids[1]) {
		t.Errorf("the other ComfyUI's worker is %q, was %d\n%s", finished.text(), pids[1], second.said(t))
	}
}

func TestANodeThatNeverLooksAtTheStopButtonIsKilledWhereTheOperatorWantsThat(t *testing.T) {
	t.Parallel()
	made := install(t)
	made.addPacks(t, "faults")
	made.environ = append(made.environ, "COMFY_SUPERVISOR_CANCEL_DEADLINE=500ms")
	running := made.start(t, made.use(t))
	path, begun := pipe(t)
	id := running.submit(t, shown(node{"FaultsWork", map[string]any{"pipe": path, "seconds": 300.0}}))
	worker := receive(t, running, begun)
	running.http(t, http.MethodPost, "/interrupt", map[string]any{})
	finished := running.await(t, id, time.Minute)
	interrupted := false
	for _, message := range finished.Status.Messages {
		interrupted = interrupted || message[0] == "execution_interrupted"
	}
	if !interrupted {
		t.Errorf("the prompt ended with %+v\n%s", finished, running.said(t))
	}
	awaitEnd(t, worker)
	next := running.run(t, shown(node{"FaultsWork", map[string]any{"pipe": "", "seconds": 0.0}}))
	if next.text() == "" || next.text() == strconv.Itoa(worker) {
		t.Errorf("the next prompt: %q %q\n%s", next.text(), next.failure(), running.said(t))
	}
}
