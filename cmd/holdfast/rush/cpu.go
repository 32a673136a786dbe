package rush

import (
	"os"
	"strings"

	"handler/function/cmd/holdfast/proc"
)

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

// used adds up the processor time of the rush and of the platform so far.
func (p Platform) used() CPUSeconds {
	var c CPUSeconds
	me, _ := proc.Read(os.Getpid())
	c.Load = me.Own
	all := proc.All()
	tree := func(q proc.Process) float64 { return proc.Tree(q.PID) }
	for _, q := range all {
		switch {
		case p.PID != 0 && q.PID == p.PID:
			c.Platform += q.Own
			c.Functions += q.Ended // functions that were killed; nothing else ends during a rush
		case p.PID != 0 && q.Parent == p.PID, q.Parent == me.PID:
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

func kindOf(q proc.Process) int {
	switch {
	case strings.HasPrefix(q.Name, "postgres"):
		return isPostgres
	case strings.HasPrefix(q.Name, "redis"):
		return isRedis
	}
	words := strings.Fields(proc.CommandLine(q.PID))
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
