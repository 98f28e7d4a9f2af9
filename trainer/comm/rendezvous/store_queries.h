// StoreQueries: what a store answers to the queries of StoreClient (store_client.h), which are
// c10d's: one byte, then arguments in the host's byte order; a text is its length (u64) and bytes.
//
//   0 validate  u32                     no answer
//   1 set       key, value              no answer
//   3 get       key                     the value; the key must be there
//   5 check     count (u64), keys       a byte: 0 all are there, 1 not
//   6 wait      count, keys             a byte 0, once all are there
//   10 multi get   count, keys          the values; the keys must be there
//   12 cancel wait                      a byte 1
//
// Owned by the thread that serves; bytes in, bytes out, no socket.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

class StoreQueries {
 public:
  // One client's answers, and what it waits for.
  struct Session {
    std::string out;
    std::set<std::string> missing;
    bool waiting = false;
  };

  // Takes all whole queries from the front of `in`. False: they are none, so the client is to be
  // dropped. `session` stays where it is until Forget.
  bool Take(int client, std::string& in, Session& session);
  // The clients whose waits came to an end since the last time.
  std::vector<int> TakeAnswered();
  void Forget(int client);

 private:
  class Reader;
  bool TakeOne(int client, Reader& reader, Session& session);
  bool Answer(const std::vector<std::string>& keys, Session& session) const;
  void Set(const std::string& key, std::string value);
  void Wait(int client, const std::vector<std::string>& keys, Session& session);

  std::map<std::string, std::string> words_;
  std::map<int, Session*> waiting_;
  std::map<std::string, std::set<int>> awaited_;  // key: who waits for it
  std::vector<int> answered_;
};

}  // namespace muster
