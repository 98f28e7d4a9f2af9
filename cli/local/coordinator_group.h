// CoordinatorGroup: what `muster up --etcd` runs in place of the one coordinator: several, each
// with a cluster directory of its own as if it were on another machine, and the members of their
// etcd.
//
// Owned by LocalCluster, which starts what this names; one thread, which holds the cluster's lock.
// A machine that fails takes all of them along, so this is for trying how a cluster takes the loss
// of its leader, and no more.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/base/processes.h"
#include "cli/client/local_coordinators.h"
#include "common/base/result.h"
#include "common/security/certificate_authority.h"

namespace muster {

class CoordinatorGroup {
 public:
  explicit CoordinatorGroup(const ClusterPaths& paths) : paths_(paths) {}

  struct Wanted {
    int coordinators = 0;  // 0: as before
    std::string etcd;      // kLocalEtcd, or URLs; empty: as before
    bool is_old = false;   // there is a cluster in the directory already
    bool is_stopped = false;
  };
  // Finds the group of the directory, or makes one where it is wanted: chooses the ports, writes
  // them down, and gives each coordinator its credentials. kFailedPrecondition: the cluster is of
  // another kind or number, or there is no etcd that could keep its state.
  Status Prepare(const Wanted& wanted);
  // For a cluster that is to end; an error counts as if there were no group.
  void Find();

  // Whether the cluster has a group; the functions below are for one that has.
  bool exists() const { return local_.has_value(); }
  const LocalCoordinators& local() const { return *local_; }

  // What runs of it.
  std::vector<NamedProcess> Coordinators() const;
  // What does not run, in the order in which it is started.
  struct Missing {
    std::string name;
    std::vector<std::string> argv;
    std::string log;
  };
  std::vector<Missing> FindMissing(const std::string& coordinator_program) const;

  // Writes the credentials of a node or an administrator, unless there are good ones.
  Status Issue(Role role, const std::string& name, const std::string& dir) const;

 private:
  Status CheckKind(const Wanted& wanted) const;
  Status Make(const Wanted& wanted);
  Status FindEtcd();
  Status CheckPorts(bool is_stopped);
  bool Runs(const std::string& member) const;
  Status MakeCredentials();
  Status CopySecurity(const SecurityPaths& to) const;
  std::string Url(const std::string& address) const { return "https://" + address; }
  std::string Certificate() const { return local_->EtcdDir() + "/cert.pem"; }
  std::string Key() const { return local_->EtcdDir() + "/key.pem"; }
  std::vector<std::string> MemberCommand(std::size_t index) const;
  std::vector<std::string> CoordinatorCommand(std::size_t index) const;

  const ClusterPaths& paths_;
  std::optional<LocalCoordinators> local_;
  std::optional<CertificateAuthority> authority_;
  std::string etcd_program_;
};

}  // namespace muster
