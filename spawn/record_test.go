package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadRecordsStopNoOthers(t *testing.T) {
	folder := temporaryFolder(t)
	write := func(content func(id string) string) string {
		id := newID()
		place := filepath.Join(folder, id)
		if err := os.MkdirAll(place, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(place, recordName), []byte(content(id)), 0o600); err != nil {
			t.Fatal(err)
		}
		return id
	}
	good := func(id string) string {
		return fmt.Sprintf(`{"version":1,"worker":%q,"launcher":{"pid":4194999,"start_time":"1"},"network":"unix","address":"x","unknown":1}`, id)
	}
	one, two := write(good), write(good)
	bad := map[string]string{
		write(func(id string) string { return good(id)[:40] }):                                              "damaged",
		write(func(string) string { return "" }):                                                            "damaged",
		write(func(string) string { return "\x00\x00\x00\x00" }):                                            "damaged",
		write(func(id string) string { return strings.Replace(good(id), `:1,"worker"`, `:9,"worker"`, 1) }): "newer",
		write(func(id string) string { return strings.Replace(good(id), `"version":1,`, "", 1) }):           "no version",
		write(func(string) string { return good(newID()) }):                                                 "whose folder this is not",
		write(func(id string) string { return strings.Replace(good(id), `4194999`, `1`, 1) }):               "launcher",
		write(func(id string) string { return strings.Replace(good(id), `"unix"`, `"udp"`, 1) }):            "network",
		write(func(string) string { return strings.Repeat("x", maxRecordBytes+1) }):                         "believable",
	}
	empty := newID()
	if err := os.MkdirAll(filepath.Join(folder, empty), 0o700); err != nil {
		t.Fatal(err)
	}
	bad[empty] = recordName
	if err := os.MkdirAll(filepath.Join(folder, "something else"), 0o700); err != nil {
		t.Fatal(err)
	}
	records, failures := LoadRecords(folder)
	if len(records) != 2 || records[0].Worker != min(one, two) || records[1].Worker != max(one, two) {
		t.Errorf("records %+v", records)
	}
	if len(failures) != len(bad) {
		t.Errorf("%d errors for %d bad records", len(failures), len(bad))
	}
	for _, failure := range failures {
		var recordError *RecordError
		if !errors.As(failure, &recordError) {
			t.Fatalf("error %v has no folder", failure)
		}
		if cause := bad[filepath.Base(recordError.Folder)]; cause == "" || !strings.Contains(failure.Error(), cause) {
			t.Errorf("error %v does not say %q", failure, cause)
		}
		if err := RemoveStale(testContext(t), recordError.Folder); err != nil {
			t.Error(err)
		}
	}
	if records, failures = LoadRecords(folder); len(records) != 2 || len(failures) != 0 {
		t.Errorf("afterwards %d records and %v", len(records), failures)
	}
}

func TestNoFolderMeansNoRecords(t *testing.T) {
	records, failures := LoadRecords(filepath.Join(temporaryFolder(t), "nowhere"))
	if len(records) != 0 || len(failures) != 0 {
		t.Errorf("%v, %v", records, failures)
	}
}

func TestRemoveStaleTouchesOnlyWorkersFolders(t *testing.T) {
	folder := temporaryFolder(t)
	if err := RemoveStale(testContext(t), folder); err == nil {
		t.Error("it has removed a folder that is none of a worker")
	}
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
}
