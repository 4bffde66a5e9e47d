// Prints [class, name, status] of each case of a JUnit file, as the parser of TestGrid and Prow's Spyglass sees them.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/GoogleCloudPlatform/testgrid/metadata/junit"
)

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		fail(err)
	}
	suites, err := junit.ParseStream(file)
	if err != nil {
		fail(err)
	}
	rows := [][]string{}
	for _, suite := range suites.Suites {
		for _, result := range suite.Results {
			status := "passed"
			switch {
			case result.Failure != nil:
				status = "failure"
			case result.Errored != nil:
				status = "error"
			case result.Skipped != nil:
				status = "skipped"
			}
			rows = append(rows, []string{result.ClassName, result.Name, status})
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(rows); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
