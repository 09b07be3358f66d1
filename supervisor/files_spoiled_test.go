package supervisor

import "testing"

func TestAFileThatAForkedChildMayMapIsToldApartOnce(t *testing.T) {
	var marks spoiled
	marks.add("a-1")
	marks.add("a-2")
	marks.add("b-1")
	if !marks.take("a-1") || marks.take("a-1") || marks.take("a-3") {
		t.Error("a mark is not taken exactly once")
	}
	marks.forget("a")
	if marks.take("a-2") || !marks.take("b-1") {
		t.Error("forgetting an owner's files forgets others or leaves some")
	}
}
