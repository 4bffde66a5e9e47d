// Prints [class, name, status] of each case of JUnit files, a list for each file, as the parser of TestGrid and Prow's Spyglass sees them.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/GoogleCloudPlatform/testgrid/metadata/junit"
)

func main() {
	all := [][][]string{}
	for _, name := range os.Args[1:] {
		all = append(all, read(name))
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		fail(err)
	}
}

func read(name string) [][]string {
	file, err := os.Open(name)
	if err != nil {
		fail(err)
	}
	defer file.Close()
	suites, err := junit.ParseStream(file)
	if err != nil {
		fail(err)
	}
	rows := [][]string{}
	for _, suite := range suites.Suites {
		for _, result := range suite.Results {
			rows = append(rows, []string{result.ClassName, result.Name, status(result)})
		}
	}
	return rows
}

func status(result junit.Result) string {
	switch {
	case result.Failure != nil:
		return "failure"
	case result.Errored != nil:
		return "error"
	case result.Skipped != nil:
		return "skipped"
	}
	return "passed"
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
