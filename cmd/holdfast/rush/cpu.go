package rush

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clockTicks is the kernel's USER_HZ, which is 100 on every Linux that Go runs
// on: times in /proc/PID/stat are in hundredths of a second.
const clockTicks = 100

// CPUSeconds is the processor time used during the rush, with ended children.
// Platform is the gateway, the triggers and whatever runs inside `holdfast up`
// itself; NATS is part of it when it is embedded there.
type CPUSeconds struct {
	Functions float64 `json:"functions"`
	Redis     float64 `json:"redis"`
	Postgres  float64 `json:"postgres"`
	NATS      float64 `json:"nats"`
	Load      float64 `json:"load"`
	Platform  float64 `json:"platform"`
}

func (c CPUSeconds) sub(o CPUSeconds) CPUSeconds {
	return CPUSeconds{c.Functions - o.Functions, c.Redis - o.Redis, c.Postgres - o.Postgres, c.NATS - o.NATS, c.Load - o.Load, c.Platform - o.Platform}
}

// process is one line of /proc/PID/stat.
type process struct {
	pid, parent int
	comm        string
	own         float64 // seconds of the process itself
	ended       float64 // seconds of its children that ended and were waited for
}

func readProcess(pid int) (process, bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	return parseStat(pid, string(raw))
}

// parseStat reads /proc/PID/stat (proc(5)); the name stands in parentheses and
// may itself contain some.
func parseStat(pid int, s string) (process, bool) {
	open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	f := strings.Fields(s[end+1:])
	if len(f) < 15 {
		return process{}, false
	}
	num := func(i int) float64 { n, _ := strconv.ParseFloat(f[i], 64); return n }
	return process{
		pid: pid, parent: int(num(1)), comm: s[open+1 : end],
		own:   (num(11) + num(12)) / clockTicks,
		ended: (num(13) + num(14)) / clockTicks,
	}, true
}

// processes lists every process of the machine.
func processes() []process {
	entries, _ := os.ReadDir("/proc")
	var list []process
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(pid); ok {
				list = append(list, p)
			}
		}
	}
	return list
}

// commandLine is the command line of a process, its words apart by spaces.
func commandLine(pid int) string {
	raw, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
}

// used adds up the processor time of the rush and of the platform so far.
func (p Platform) used() CPUSeconds {
	var c CPUSeconds
	me, _ := readProcess(os.Getpid())
	c.Load = me.own
	all := processes()
	children := map[int][]process{}
	for _, q := range all {
		children[q.parent] = append(children[q.parent], q)
	}
	var tree func(q process) float64
	tree = func(q process) float64 {
		sum := q.own + q.ended
		for _, child := range children[q.pid] {
			sum += tree(child)
		}
		return sum
	}
	for _, q := range all {
		switch {
		case p.PID != 0 && q.pid == p.PID:
			c.Platform += q.own
			c.Functions += q.ended // functions that were killed; nothing else ends during a rush
		case p.PID != 0 && q.parent == p.PID, q.parent == me.pid:
			switch kindOf(q) {
			case isPostgres:
				c.Postgres += tree(q)
			case isRedis:
				c.Redis += tree(q)
			case isNATS:
				c.NATS += tree(q)
			case isFunction:
				c.Functions += tree(q)
			}
		}
	}
	return c
}

// What a child process of the platform is.
const (
	isOther = iota
	isPostgres
	isRedis
	isNATS
	isFunction
)

func kindOf(q process) int {
	switch {
	case strings.HasPrefix(q.comm, "postgres"):
		return isPostgres
	case strings.HasPrefix(q.comm, "redis"):
		return isRedis
	}
	words := strings.Fields(commandLine(q.pid))
	switch {
	case len(words) < 2:
		return isOther
	case words[1] == "nats":
		return isNATS
	case words[1] == "function":
		return isFunction
	}
	return isOther
}
