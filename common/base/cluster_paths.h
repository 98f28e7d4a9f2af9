// Where a local cluster keeps its files, below the directory given to `muster up --dir`. Each path
// has one function here; no other code spells these names.
//
//   DIR/coordinator/{endpoint.json,token,state.db,coordinator.log,coordinator.pid}
//   DIR/coordinator/{workers-endpoint.json,socket}   of a cluster in network namespaces
//   DIR/nodes/NAME/{worker.log,worker.pid,worker.json,epoch,id}
//   DIR/nodes/NAME/jobs/JOB/            one guardian: socket, records, spec
//   DIR/nodes/NAME/devices/ID.lock      locked by the processes that may use the device
//   DIR/{cluster.json,up.lock,pilots.yaml}
//   DIR/security/                       made by `muster init`: see SecurityPaths
#pragma once

#include <string>

namespace muster {

// An authority's directory: what `muster init` makes below a cluster's, and an allocation has of
// its own in its shared one. Formats: common/security.
//
//   DIR/{ca.pem,ca.key,issued.jsonl}     the certificate authority
//   DIR/{coordinator,admin,scraper}/     credentials: ca.pem, cert.pem, key.pem
//   DIR/{revoked.json,join-tokens.json}
//   DIR/users/{root.pem,cert.pem,key.pem} the authority for people who log in
struct SecurityPaths {
  std::string dir;

  std::string AuthorityCertificate() const { return dir + "/ca.pem"; }
  std::string AuthorityKey() const { return dir + "/ca.key"; }
  std::string IssuedCertificates() const { return dir + "/issued.jsonl"; }
  std::string RevokedCertificates() const { return dir + "/revoked.json"; }
  std::string JoinTokens() const { return dir + "/join-tokens.json"; }
  std::string CoordinatorCredentials() const { return dir + "/coordinator"; }
  std::string AdminCredentials() const { return dir + "/admin"; }
  std::string ScraperCredentials() const { return dir + "/scraper"; }
  // The authority for people who log in (common/security/user_authority.h).
  std::string UserAuthority() const { return dir + "/users"; }
};

struct ClusterPaths {
  std::string dir;  // absolute

  // What `muster up` was asked for: {"nodes": N, "slots": N}; and the lock that up and down hold.
  std::string ClusterRecord() const { return dir + "/cluster.json"; }
  std::string UpLock() const { return dir + "/up.lock"; }

  std::string CoordinatorDir() const { return dir + "/coordinator"; }
  // {"grpc": "127.0.0.1:PORT", "http": "127.0.0.1:PORT", "pid": N}; written when both listen.
  std::string Endpoint() const { return CoordinatorDir() + "/endpoint.json"; }
  // The same with the address for workers, where they have one of their own (`muster up --netns`).
  std::string WorkersEndpoint() const { return CoordinatorDir() + "/workers-endpoint.json"; }
  // Where the coordinator of such a cluster listens for clients.
  std::string ClientSocket() const { return CoordinatorDir() + "/socket"; }
  std::string Token() const { return CoordinatorDir() + "/token"; }
  std::string Database() const { return CoordinatorDir() + "/state.db"; }
  // What the keys of stored secrets are encrypted with (common/security/secret_keys.h).
  std::string SecretKeys() const { return CoordinatorDir() + "/secret-keys"; }
  std::string CoordinatorLog() const { return CoordinatorDir() + "/coordinator.log"; }
  // What is wanted of the pool of pilot jobs, and what there is (docs/pilots.md).
  std::string Pilots() const { return dir + "/pilots.yaml"; }
  std::string PilotsStatus() const { return CoordinatorDir() + "/pilots.json"; }
  // Locked (flock) for as long as the coordinator lives; holds its pid.
  std::string CoordinatorPid() const { return CoordinatorDir() + "/coordinator.pid"; }

  SecurityPaths Security() const { return {dir + "/security"}; }

  std::string NodesDir() const { return dir + "/nodes"; }
  std::string NodeDir(const std::string& node) const { return NodesDir() + "/" + node; }
  std::string WorkerLog(const std::string& node) const { return NodeDir(node) + "/worker.log"; }
  std::string WorkerPid(const std::string& node) const { return NodeDir(node) + "/worker.pid"; }
  // {"http": "127.0.0.1:PORT", "pid": N, "slots": N}
  std::string WorkerRecord(const std::string& node) const { return NodeDir(node) + "/worker.json"; }
  // For a worker that has joined a coordinator on another machine.
  std::string NodeCredentials(const std::string& node) const {
    return NodeDir(node) + "/credentials";
  }
  // Where the coordinator is that the node has joined, IP:PORT.
  std::string CoordinatorOfNode(const std::string& node) const {
    return NodeDir(node) + "/coordinator";
  }
  // Random, as old as the directory.
  std::string NodeId(const std::string& node) const { return NodeDir(node) + "/id"; }
  // The highest epoch of a coordinator that has welcomed the node, in digits.
  std::string EpochMet(const std::string& node) const { return NodeDir(node) + "/epoch"; }
  std::string DevicesDir(const std::string& node) const { return NodeDir(node) + "/devices"; }
  std::string JobsDir(const std::string& node) const { return NodeDir(node) + "/jobs"; }
  std::string JobDir(const std::string& node, const std::string& job) const {
    return JobsDir(node) + "/" + job;
  }
};

}  // namespace muster
