package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// The files of a store that does not run. In etcd's database only the pages with metadata have a checksum (bbolt,
// internal/common/meta.go), so a member opens a database with another value and serves it.

// replaceText replaces each occurrence of a text in a file by another one of the same length, and prints their number.
// The database keeps old copies of a value in pages that are free.
func replaceText(path, text, other string) error {
	if text == "" || len(text) != len(other) {
		return fmt.Errorf("%q and %q must be texts of the same length", text, other)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	places := occurrences(content, []byte(text))
	if len(places) == 0 {
		return fmt.Errorf("%s does not contain %q", path, text)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, place := range places {
		if _, err := file.WriteAt([]byte(other), place); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	fmt.Printf("damage: replaced %d\n", len(places))
	return file.Close()
}

// occurrences returns the offsets of a text that do not overlap.
func occurrences(content, text []byte) []int64 {
	var places []int64
	for at := 0; ; at += len(text) {
		next := bytes.Index(content[at:], text)
		if next < 0 {
			return places
		}
		at += next
		places = append(places, int64(at))
	}
}

// setAside renames a folder to FOLDER.removed, which replaces the folder of an earlier call.
func setAside(folder string) error {
	removed := folder + ".removed"
	if err := os.RemoveAll(removed); err != nil {
		return err
	}
	return os.Rename(folder, removed)
}
