package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// leftOf lists processes that have one of the marks in their environment, command line, working directory or among
// their open files, and bound sockets that have it in their path. This process does not count.
func leftOf(marks []string) ([]string, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var left []string
	for _, folder := range folders {
		if folder == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		if mark := markedBy(folder, marks); mark != "" {
			command, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
			left = append(left, fmt.Sprintf("process %s by %s: %s", filepath.Base(folder), mark, bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		}
	}
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(sockets)) {
		for _, mark := range marks {
			if strings.Contains(line, mark) {
				left = append(left, "socket "+strings.TrimSpace(line))
			}
		}
	}
	return left, nil
}

// markedBy is the mark that a process has, or nothing. Files that can not be read belong to processes that have ended.
func markedBy(folder string, marks []string) string {
	var texts []string
	for _, name := range []string{"environ", "cmdline"} {
		content, _ := os.ReadFile(filepath.Join(folder, name))
		texts = append(texts, string(content))
	}
	links, _ := filepath.Glob(filepath.Join(folder, "fd", "*"))
	for _, link := range append(links, filepath.Join(folder, "cwd"), filepath.Join(folder, "exe")) {
		target, _ := os.Readlink(link)
		texts = append(texts, target)
	}
	for _, text := range texts {
		for _, mark := range marks {
			if strings.Contains(text, mark) {
				return mark
			}
		}
	}
	return ""
}

func TestAProcessThatIsLeftIsSeen(t *testing.T) {
	t.Parallel()
	mark := "COMFY_SUPERVISOR_WORKER=" + rand.Text()
	command := exec.Command("sleep", "600")
	command.Env = []string{mark}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	left, err := leftOf([]string{mark})
	if err != nil || len(left) != 1 || !strings.Contains(left[0], fmt.Sprintf("process %d by %s", command.Process.Pid, mark)) {
		t.Errorf("left are %q, %v", left, err)
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil {
		t.Error("a killed process ended well")
	}
	if left, err := leftOf([]string{mark}); err != nil || len(left) != 0 {
		t.Errorf("left when it had ended are %q, %v", left, err)
	}
}
