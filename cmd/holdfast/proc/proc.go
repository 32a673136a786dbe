// Package proc reads the processor time of processes from /proc.
package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clockTicks is the kernel's USER_HZ, which is 100 on every Linux that Go runs
// on: times in /proc/PID/stat are in hundredths of a second.
const clockTicks = 100

// Process is one line of /proc/PID/stat.
type Process struct {
	PID, Parent int
	Name        string  // at most 15 characters
	Own         float64 // seconds of the process itself
	Ended       float64 // seconds of its children that ended and were waited for
}

// Read reads one process; false when there is none.
func Read(pid int) (Process, bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Process{}, false
	}
	return parseStat(pid, string(raw))
}

// parseStat reads /proc/PID/stat (proc(5)); the name stands in parentheses and
// may itself contain some.
func parseStat(pid int, s string) (Process, bool) {
	open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 0 || end < open {
		return Process{}, false
	}
	f := strings.Fields(s[end+1:])
	if len(f) < 15 {
		return Process{}, false
	}
	num := func(i int) float64 { n, _ := strconv.ParseFloat(f[i], 64); return n }
	return Process{
		PID: pid, Parent: int(num(1)), Name: s[open+1 : end],
		Own:   (num(11) + num(12)) / clockTicks,
		Ended: (num(13) + num(14)) / clockTicks,
	}, true
}

// All lists every process of the machine.
func All() []Process {
	entries, _ := os.ReadDir("/proc")
	var list []Process
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := Read(pid); ok {
				list = append(list, p)
			}
		}
	}
	return list
}

// CommandLine is the command line of a process, its words apart by spaces.
func CommandLine(pid int) string {
	raw, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
}

// Tree is the processor time in seconds that a process, its living and its
// ended children have used.
func Tree(pid int) float64 { return tree(pid, All()) }

func tree(pid int, all []Process) float64 {
	children := map[int][]Process{}
	var root Process
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
		if p.PID == pid {
			root = p
		}
	}
	var sum func(p Process) float64
	sum = func(p Process) float64 {
		t := p.Own + p.Ended
		for _, c := range children[p.PID] {
			t += sum(c)
		}
		return t
	}
	return sum(root)
}
