package bench

import (
	"os"
	"testing"
)

func TestAProcessIsMeasured(t *testing.T) {
	private, resident, err := memoryOf(os.Getpid())
	if err != nil || private <= 0 || resident < private {
		t.Errorf("private %d, resident %d, %v", private, resident, err)
	}
	content := make([]byte, 16<<20)
	for index := range content {
		content[index] = byte(index)
	}
	grown, _, err := memoryOf(os.Getpid())
	if err != nil || grown < private+int64(len(content))/2 {
		t.Errorf("private %d after %d, %v; %d", grown, private, err, content[12345])
	}
	before, err := processorTime(os.Getpid())
	if err != nil || before <= 0 {
		t.Fatal(before, err)
	}
	for {
		after, err := processorTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after > before {
			return
		}
	}
}

func TestAProcessThatIsGoneCanNotBeMeasured(t *testing.T) {
	const none = 1 << 30 // beyond every PID
	if _, _, err := memoryOf(none); err == nil {
		t.Error("its memory was read")
	}
	if _, err := processorTime(none); err == nil {
		t.Error("its time was read")
	}
}
