// A request and its answer without a socket, and the server's thread without a thread: work that is posted is done when a
// test says so.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "megalith/serve/http.h"

namespace megalith::test {

class FakeExchange : public serve::Exchange {
 public:
  explicit FakeExchange(serve::HttpRequest request) : request_(std::move(request)) {
    request_.arrived = std::chrono::steady_clock::now();
    request_.peer = "10.1.2.3";
  }
  const serve::HttpRequest& request() const override { return request_; }
  void reply(serve::HttpReply reply) override {
    EXPECT_FALSE(head) << "answered twice";
    head = std::move(reply);
    body = head->body;
    has_ended = true;
  }
  void begin(serve::HttpReply from) override {
    EXPECT_FALSE(head) << "answered twice";
    head = std::move(from);
    body = head->body;
    parts.push_back(body);
  }
  void write(std::string_view part) override {
    EXPECT_TRUE(head) << "a part before the head";
    EXPECT_FALSE(has_ended) << "a part behind the end";
    body += part;
    parts.emplace_back(part);
  }
  void end() override {
    EXPECT_TRUE(head && !has_ended);
    has_ended = true;
  }
  /// The client goes.
  void go() {
    if (on_gone) std::exchange(on_gone, nullptr)();
  }

  int status() const { return head ? head->status : 0; }
  std::string header(std::string_view name) const {
    for (const auto& [key, value] : head->headers)
      if (key == name) return value;
    return "";
  }

  std::optional<serve::HttpReply> head;
  std::string body;
  std::vector<std::string> parts;
  bool has_ended = false;

 private:
  serve::HttpRequest request_;
};

class FakeLoop {
 public:
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  /// Does what is posted until `condition` holds.
  void run_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 20000; ++i) {
      run();
      if (condition()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "this never came";
  }
  void run() {
    while (true) {
      std::function<void()> work;
      {
        const std::lock_guard lock(mutex_);
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> work_;
};

}  // namespace megalith::test
