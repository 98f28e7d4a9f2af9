// EtcdExport: copies the audit trail and the events of a store in etcd to a folder of this machine,
// whether its coordinator leads or stands by. The leader deletes old ones in etcd once two
// coordinators have them.
//
//   DIR/audit-0000000000000001.jsonl     a line each, as it was stored; the number is the seq of
//   DIR/events-0000000000000001.jsonl    the first one
//
// A thread of its own reads what is new, writes and syncs it, and notes in the key
// `exported/NAME` how far it has come; the folder has the name. A line that a crash cut is written
// again.
//
// Owned by the server, from before the campaign on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "coordinator/store/etcd_client.h"
#include "coordinator/store/etcd_keys.h"

namespace muster {

struct EtcdExportOptions {
  EtcdAccess access;
  std::string prefix;
  std::string dir;   // is made
  std::string host;  // for people who look at NAME
  Duration interval = std::chrono::seconds(5);
  std::uint64_t file_bytes = 64 << 20;  // at which the next file is begun
  // On a thread of the export: what an operator should know; the same text once.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

class EtcdExport {
 public:
  // Fails where etcd's credentials or the folder cannot be used.
  static Result<std::unique_ptr<EtcdExport>> Start(EtcdExportOptions options);
  ~EtcdExport();
  EtcdExport(const EtcdExport&) = delete;
  EtcdExport& operator=(const EtcdExport&) = delete;

 private:
  // The files of one kind: "audit", "events".
  struct Kind {
    std::string name;
    std::string path;            // of the newest file; empty: there is none
    std::uint64_t bytes = 0;     // of that
    std::uint64_t exported = 0;  // seq of its last line
    bool restored = false;       // etcd is behind that, and has other lines now
  };

  EtcdExport(EtcdExportOptions options, std::unique_ptr<EtcdClient> client, std::string name);
  Status Open(Kind* kind) const;
  Status Copy(Kind* kind);
  Status Append(Kind* kind, std::uint64_t seq, const std::string& lines, std::uint64_t last) const;
  Status CheckNotBehind(Kind* kind);
  Status CopyAll();
  Status Note();
  void Run();

  const EtcdExportOptions options_;
  const EtcdKeys keys_;
  const std::unique_ptr<EtcdClient> client_;
  const std::string name_;
  Kind audit_{.name = "audit"}, events_{.name = "events"};
  std::string noted_;  // value of the key
  std::string warned_;

  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stopping_ = false;
  std::thread thread_;
};

// The seq up to which as many coordinators as `copies` have the audit trail and the events, or all
// of them where there are fewer; 0: none has.
struct EtcdExported {
  std::uint64_t audit = 0;
  std::uint64_t events = 0;
};
Result<EtcdExported> ReadExported(EtcdClient& client, const EtcdKeys& keys, std::size_t copies);

}  // namespace muster
