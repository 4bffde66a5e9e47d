package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func TestHardwareIsAnswered(t *testing.T) {
	var output bytes.Buffer
	sender := newSender(&output)
	newComponents(sender.send, nil).answer(&request{ID: 3, Do: "hardware"}, sender)
	var answer struct {
		ID      int64       `json:"id"`
		Error   string      `json:"error"`
		Auxv    [][2]uint64 `json:"auxv"`
		CPUInfo string      `json:"cpuinfo"`
		Maps    string      `json:"maps"`
		CPUs    string      `json:"cpus"`
	}
	if err := json.Unmarshal(output.Bytes(), &answer); err != nil || answer.Error != "" || answer.ID != 3 {
		t.Fatalf("not an answer (%v): %s", err, output.Bytes())
	}
	// AT_PAGESZ
	pages := uint64(0)
	for _, entry := range answer.Auxv {
		if entry[0] == 6 {
			pages = entry[1]
		}
	}
	if pages != uint64(os.Getpagesize()) {
		t.Errorf("the page size is %d instead of %d", pages, os.Getpagesize())
	}
	if answer.CPUInfo == "" || answer.CPUs == "" || !strings.Contains(answer.Maps, "[stack]") {
		t.Errorf("a text is missing: %s", output.Bytes())
	}
}
