package main

import (
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// shape names a request: what is asked, and of which of Kubernetes' resources.
func shape(method string, bytes []byte) string {
	switch method {
	case "Range", "RangeStream":
		var asked pb.RangeRequest
		if asked.Unmarshal(bytes) == nil {
			return method + " " + ranged(&asked) + resource(asked.Key)
		}
	case "Txn":
		var asked pb.TxnRequest
		if asked.Unmarshal(bytes) == nil {
			return "Txn " + transaction(&asked)
		}
	case "Watch":
		var asked pb.WatchRequest
		if asked.Unmarshal(bytes) == nil {
			return watch(&asked)
		}
	}
	return method
}

func ranged(asked *pb.RangeRequest) string {
	switch {
	case asked.CountOnly:
		return "count"
	case asked.KeysOnly:
		return "keys"
	case len(asked.RangeEnd) == 0:
		return "key"
	case asked.Revision > 0:
		return "list at a revision"
	}
	return "list"
}

// transaction tells those of Kubernetes apart: one comparison, one change, a read where it fails.
func transaction(asked *pb.TxnRequest) string {
	if len(asked.Compare) != 1 || len(asked.Success) != 1 {
		return "other"
	}
	compared := asked.Compare[0]
	of := resource(compared.Key)
	if compared.Target != pb.Compare_MOD {
		return "by version" + of
	}
	change := asked.Success[0]
	switch {
	case change.GetRequestDeleteRange() != nil:
		return "delete" + of
	case change.GetRequestPut() == nil:
		return "other" + of
	case compared.GetModRevision() == 0:
		return "create" + of
	}
	return "update" + of
}

func watch(asked *pb.WatchRequest) string {
	switch {
	case asked.GetCreateRequest() != nil:
		return "Watch create" + resource(asked.GetCreateRequest().Key)
	case asked.GetCancelRequest() != nil:
		return "Watch cancel"
	case asked.GetProgressRequest() != nil:
		return "Watch progress"
	}
	return "Watch"
}

// resource is the part of a key that names it: `pods` of /registry/pods/default/one.
func resource(key []byte) string {
	parts := strings.Split(string(key), "/")
	switch {
	case len(parts) < 3 || parts[1] != "registry":
		return ""
	case strings.Contains(parts[2], ".") && len(parts) > 3:
		return " " + parts[2] + "/" + parts[3]
	}
	return " " + parts[2]
}
