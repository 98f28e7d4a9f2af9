// What `muster doctor` reads of the machine that it runs on.
//
// ReadMachine looks at /proc, /sys and limits, starts Muster's programs once to learn their
// versions, looks a name up and connects to the peers: some seconds at most. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster {

struct DirectoryFacts {
  std::string path;
  std::string error;  // why nothing can be written there; empty: it can
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::string network_file_system;  // "NFS"; empty: it is of this machine
  bool locks = true;                // flock works there
};

struct ProgramFacts {
  std::string name;
  std::string version;  // "0.2.0 (commit ...)"
  std::string error;    // why it does not start; empty: it does
};

struct PeerFacts {
  std::string address;
  std::string error;       // no packet came back; empty: it answered, even if by a refusal
  bool is_address = true;  // else nothing was sent
  std::string ip;          // what the name stands for; empty: unknown
};

// Limits of the control groups that this process is in, of version 1 or 2; nothing: no limit.
struct GroupLimits {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<double> cpus;
  std::optional<std::uint64_t> processes;
};

struct MachineFacts {
  std::string kernel;  // as uname gives it: "6.1.0-13-amd64"
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_available_bytes = 0;
  int cpus = 0;         // online
  int usable_cpus = 0;  // of the affinity
  GroupLimits groups;
  std::optional<std::uint64_t> open_files;  // the hard limits; nothing: none
  std::optional<std::uint64_t> processes;
  std::optional<std::uint64_t> locked_bytes;
  bool has_rdma = false;
  int overcommit = 0;              // vm.overcommit_memory
  std::uint64_t map_count = 0;     // vm.max_map_count; 0: unknown
  std::string huge_pages;          // "always", "madvise", "never"; empty: unknown
  std::string namespaces_setting;  // by which this user can make no user namespace; empty: none
  std::int64_t unix_seconds = 0;   // the clock
  bool clock_in_step = true;       // the kernel's clock follows a time server

  std::string host_name;
  bool host_name_resolves = true;
  std::string hub_host;
  bool hub_host_resolves = true;
  std::string loopback_error;         // why 127.0.0.1 is not reached; empty: it is
  int first_port = 0, last_port = 0;  // of those that the kernel gives out
  bool port_is_free = true;
  std::vector<PeerFacts> peers;

  DirectoryFacts state, temporary, shared_memory;

  std::string own_version;
  std::string own_path;
  std::string path_muster;  // the first "muster" of PATH; empty: none is there
  std::vector<ProgramFacts> programs;
  ProgramFacts trainer;  // with its LibTorch
  int nvidia_gpus = 0;   // on the PCI bus
  bool nvidia_driver = false;
};

struct MachineQuestion {
  std::string state_dir;           // the cluster's directory; it need not exist
  std::vector<std::string> peers;  // HOST:PORT to connect to
};
MachineFacts ReadMachine(const MachineQuestion& question);

}  // namespace muster
