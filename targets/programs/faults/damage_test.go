package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEachOccurrenceIsReplacedInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	for _, c := range []struct{ content, text, other, expected string }{
		{"..good..goodgood", "good", "evil", "..evil..evilevil"},
		{"aaaaa", "aa", "bb", "bbbba"},
		{"good", "good", "good", "good"},
	} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run([]string{"replace-text", path, c.text, c.other}); err != nil {
			t.Errorf("%q: %v", c.content, err)
		}
		if seen, err := os.ReadFile(path); err != nil || string(seen) != c.expected {
			t.Errorf("%q became %q instead of %q: %v", c.content, seen, c.expected, err)
		}
	}
}

func TestFileWithoutTheTextIsRefusedUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, []byte("good"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, texts := range [][2]string{{"evil", "good"}, {"good", "longer"}, {"", ""}} {
		if err := replaceText(path, texts[0], texts[1]); err == nil {
			t.Errorf("%q was accepted", texts)
		}
	}
	if seen, err := os.ReadFile(path); err != nil || string(seen) != "good" {
		t.Errorf("the file is %q: %v", seen, err)
	}
	if err := replaceText(path+"-absent", "good", "evil"); err == nil {
		t.Error("an absent file was accepted")
	}
}

func TestFolderIsSetAsideTwice(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "main-2")
	for _, name := range []string{"first", "second"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := run([]string{"set-aside", folder}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", folder, err)
		}
		left, err := os.ReadDir(folder + ".removed")
		if err != nil || len(left) != 1 || left[0].Name() != name {
			t.Errorf("set aside: %v, %v", left, err)
		}
	}
}
