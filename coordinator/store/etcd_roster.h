// EtcdRoster: the coordinators of a cluster, as they have entered themselves into etcd.
//
//   coordinators/NAME    {"address", "page", "join", "seen_ms"}, rewritten every ten minutes
//
// Each writes its own entry and reads all of them every two seconds. Nothing is decided by them:
// they say where to look, and one that is gone stays for a day, so that its absence is seen.
//
// Owned by the server, from before it campaigns to its end. A thread of its own with channels of
// its own; any thread may call the functions.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "coordinator/store/etcd_client.h"
#include "coordinator/store/etcd_keys.h"

namespace muster {

// Where other machines reach a coordinator; empty: they do not.
struct CoordinatorPlace {
  std::string address;  // calls: IP:PORT
  std::string page;     // HTTPS
  std::string join;     // where nodes join and people log in
  friend bool operator==(const CoordinatorPlace&, const CoordinatorPlace&) = default;
};

class EtcdRoster {
 public:
  // `name`: of this coordinator, also when it is started again, and no other one's. Fails as
  // EtcdClient::Open.
  static Result<std::unique_ptr<EtcdRoster>> Open(const EtcdAccess& access,
                                                  const std::string& prefix,
                                                  const std::string& name);
  ~EtcdRoster();
  EtcdRoster(const EtcdRoster&) = delete;
  EtcdRoster& operator=(const EtcdRoster&) = delete;

  // From now on the entry says this.
  void Announce(CoordinatorPlace own);
  // This coordinator first, if it was announced, then the others by their keys.
  std::vector<CoordinatorPlace> All() const;

 private:
  EtcdRoster(std::unique_ptr<EtcdClient> client, std::string folder, std::string key);
  void Follow();
  bool Write(std::int64_t now_ms);
  void Read(std::int64_t now_ms);

  const std::unique_ptr<EtcdClient> client_;
  const std::string folder_;
  const std::string key_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool is_announced_ = false;
  std::int64_t write_at_ms_ = 0;
  CoordinatorPlace own_;
  std::vector<CoordinatorPlace> others_;
  std::thread thread_;
};

}  // namespace muster
