package platform

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU is the processor time used since the platform's start, in seconds. What
// runs inside the workbench's own process (NATS and, without --processes, the
// functions) cannot be told apart there and counts as Functions.
type CPU struct {
	Functions float64 `json:"functions"`
	Redis     float64 `json:"redis"`
	Postgres  float64 `json:"postgres"`
	NATS      float64 `json:"nats"`
}

// ticks a second in /proc: fixed at 100 for user space on Linux.
const ticks = 100

// treeCPU is the time of a process, its ended and its living children.
func treeCPU(pid int) time.Duration {
	if pid <= 0 {
		return 0
	}
	d := procCPU(pid)
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for _, c := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(c); err == nil {
				d += treeCPU(n)
			}
		}
	}
	return d
}

// procCPU is a process's own time and that of its children that were waited for.
func procCPU(pid int) time.Duration {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// After the name in parentheses, field 3 of proc(5) comes first: utime,
	// stime, cutime and cstime are 14 to 17.
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 15 {
		return 0
	}
	var sum int64
	for _, v := range f[11:15] {
		n, _ := strconv.ParseInt(v, 10, 64)
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks
}
