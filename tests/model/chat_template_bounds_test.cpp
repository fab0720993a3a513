// A template comes with a model and messages come from strangers: none of them takes time, memory or stack without end.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include "megalith/model/chat_template.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

std::string repeated(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

std::string error(const std::string& source) {
  return user_error([&] { ChatTemplate::parse(source, "t").render({{"user", "hi"}}); });
}

// Each of these takes memory, time or stack without end where nothing is bounded.
TEST(ChatTemplateBoundsTest, TemplatesThatRunAwayEnd) {
  // Python computes 10 to the power of that.
  EXPECT_EQ(error("{% if (1234 | round(-9223372036854775808)) != 0 %}{{ raise_exception('no') }}{% endif %}"), "");
  EXPECT_THAT(error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("nests deeper than 600 levels: a macro"));
  EXPECT_THAT(error("{{ " + repeated("(", 10000) + "1" + repeated(")", 10000) + " }}"),
              HasSubstr("nests deeper than 200"));
  EXPECT_THAT(error("{{ " + repeated("-", 10000) + "1 }}"), HasSubstr("nests deeper than 200 levels"));
  EXPECT_THAT(error("{{ " + repeated("not ", 10000) + "1 }}"), HasSubstr("nests deeper than 200 levels"));
  EXPECT_THAT(error("{{ 1" + repeated(" + 1", 10000) + " }}"), HasSubstr("nests deeper than 200 levels"));
  EXPECT_THAT(error("{{ a" + repeated(".a", 10000) + " }}"), HasSubstr("nests deeper than 200 levels"));
  EXPECT_THAT(error("{{ a" + repeated("|a", 10000) + " }}"), HasSubstr("nests deeper than 200 levels"));
  EXPECT_THAT(error("{{ " + repeated("1 if 1 else ", 10000) + "1 }}"), HasSubstr("nests deeper than 200 levels"));
  EXPECT_THAT(error(repeated("{% if 1 %}", 1000)), HasSubstr("statements nest deeper than 60 levels"));
  EXPECT_THAT(error("{% set " + repeated("(", 10000) + "a"), HasSubstr("a tag begins that has no %}"));
  EXPECT_THAT(error("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
              HasSubstr("takes more than 10000000 steps"));
  EXPECT_THAT(error("{{ 'x' * 999999999 }}"), HasSubstr("a text has more than 67108864 bytes"));
  EXPECT_THAT(error("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
              HasSubstr("t, line 1:"));
  EXPECT_THAT(error("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
              HasSubstr("a value has more than 4000000 parts"));
  EXPECT_THAT(error("{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("a value nests deeper than 100 levels"));
  EXPECT_THAT(
      error(
          "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
      HasSubstr("a value has more than 4000000 parts"));
  EXPECT_THAT(error("{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
                    "%}{{ ns.x | tojson }}"),
              HasSubstr("a value has more than 4000000 parts"));
  EXPECT_THAT(error("{% for i in range(99999) %}" + std::string(10000, 'x') + "{% endfor %}"),
              HasSubstr("a text has more than 67108864 bytes"));
  EXPECT_THAT(error("{{ 'aaaaaaaa' * 1000000 | replace('a', 'b' * 1000) }}"), HasSubstr("t, line 1:"));
  EXPECT_THAT(error("{{ 2 ** 9999999999 }}"), HasSubstr("is too large"));
  EXPECT_THAT(error("{{ '%999999999d' % 1 }}"), HasSubstr("a text has more than 67108864 bytes"));
  EXPECT_THAT(error(std::string((1 << 20) + 1, 'x')), HasSubstr("t has 1048577 bytes, want at most 1048576"));
  EXPECT_EQ(error("{% set ns = namespace() %}{% set ns.me = ns %}{% macro f() %}{{ ns.me }}{% endmacro %}x"), "");
  EXPECT_THAT(user_error([&] { TemplateValue::from_json(repeated("[", 100000), "m"); }),
              HasSubstr("m nests deeper than 100"));
  // Comparing values that share their parts takes as many steps as they have paths.
  EXPECT_THAT(error("{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
                    "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}"),
              HasSubstr("t, line 1:"));
}

// Steps that take as much as a thousand others, a hundred thousand times: each is charged for what it goes through and
// makes, so that all of them together end as soon as many small ones do.
TEST(ChatTemplateBoundsTest, LargeStepsCostMore) {
  // Seven million steps are spent at once, so that the test takes less time.
  const std::string kLoop = "{% set x = 'x' * 25000000 %}{% for i in range(99999) %}", kEnd = "{% endfor %}";
  for (const auto& [before, step] : std::initializer_list<std::pair<const char*, const char*>>{
           {"", "{% set x = 'x' * 1000000 %}"},
           {"{% set s = 'aß' * 300000 %}", "{% set x = s | upper %}"},
           {"{% set s = 'Σ' * 300000 %}", "{% set x = s.lower() %}"},
           {"{% set s = 'ab ' * 300000 %}", "{% set x = s | title %}"},
           {"{% set s = 'a ' * 300000 %}", "{% set x = s.split() %}"},
           {"{% set s = 'a' * 1000000 %}", "{% set x = s.replace('a', 'bb') %}"},
           {"{% set s = 'a' * 1000000 %}", "{% set x = s.replace('', 'b') %}"},
           {"{% set s = 'a' * 1000000 %}{% set n = 'b' ~ 'a' * 200 %}", "{% set x = s.find(n) ~ s.rfind(n) %}"},
           {"{% set s = 'a' * 1000000 %}", "{% set x = s.strip(s) %}"},
           {"{% set s = 'é' * 1000000 %}", "{% set x = s[::-1] %}"},
           {"{% set s = 'é' * 1000000 %}", "{% set x = s[999999] %}"},
           {"{% set s = 'é' * 1000000 %}", "{% set x = s.isidentifier() %}"},
           {"", "{% set x = [1] * 1000000 %}"},
           {"{% set s = [1] * 1000000 %}", "{% set x = s[1:] %}"},
           {"{% set s = range(100000) | list %}", "{% set x = s | sort(reverse=true) %}"},
           {"{% set s = range(100000) | list %}", "{% set x = s | unique | list %}"},
           {"{% set s = range(100000) | list %}", "{{ -1 in s }}"},
           {"{% set s = 'x' * 1000000 %}{% set s = [s ~ 1, s ~ 2, s ~ 0] %}",
            "{% set x = s | sort(case_sensitive=true) %}"},
           {"{% set s = ['x' * 10000] * 100 %}", "{% set x = s | join(',') %}"},
           {"{% set s = ['\n' * 10000] * 100 %}", "{% set x = s | tojson %}"},
           {"{% set s = ['\x01' * 10000] * 100 %}", "{% set x = s | string %}"},
           {"{% set s = ['ab ' * 1000] * 300 %}", "{% set x = s | pprint %}"},
           {"", "{% set x = '%10000000d' % 1 %}"},
           {"", "{% set x = '{:010000000,}'.format(1) %}"},
           {"", "{% set x = '%.1000000f' % 1 %}"},
           {"", "{% set x = 'x'.center(10000000) %}"},
           {"", "{% set x = '\t'.expandtabs(10000000) %}"},
           {"", "{% set x = 'a\nb' | indent(10000000) %}"},
           {"{% set a = 3 ** 80000 %}", "{% set x = a * 7 // 5 %}"},
           {"{% set a = 10 ** 4000 %}", "{% set x = a ~ '' %}"},
           {"{% set a = '0x' ~ 'f' * 30000 %}", "{% set x = a | int(0, 16) %}"},
           {"", "{% set x = range(100000) | list %}"},
           {"", "{% set x = [1] | batch(1000000, 0) | list %}"},
           {"{% set s = 'ab-cd ' * 100000 %}", "{% set x = s | wordwrap(1) %}"},
           {"{% set s = 'http://a.b ' * 100000 %}", "{% set x = s | urlize %}"},
           {"{% set s = '<a>&amp;' * 200000 %}", "{% set x = s | striptags %}"},
           {"{% set s = '<' * 1000000 %}", "{% set x = s | e %}"},
           {"{% set s = '<' * 1000000 %}", "{% set x = ('' | safe) + s %}"},
           {"{% set s = 'ab' * 500000 %}{% set t = {97: 'x'} %}", "{% set x = s.translate(t) %}"},
           {"{% set k = 'x' * 1000000 %}", "{% set x = {k: 1}[k] %}"},
           {"{% set k = 'x' * 1000000 %}{% set a = [k ~ 1] * 9 %}{% set b = [k ~ 1] * 9 %}", "{{ a == b }}"},
           {"{% set s = '{0}' * 10000 %}", "{% set x = s.format('xxxxxxxxxx') %}"},
           {"{% set s = [{'a': 1}] * 10000 %}", "{% set x = s | groupby('a') %}"},
           {"{% set p = 'a.' * 100000 %}", "{% set x = [{}] | map(attribute=p, default=1) | list %}"},
           {"{% set d = dict.fromkeys(range(10000) | map('string')) %}", "{% set x = dict(**d) %}"},
           {"{% set k = 'x' * 1000000 %}{% set d = {1: 2}.keys() %}", "{{ d.isdisjoint([k] * 500) }}"},
           {"{% set k = ['x' * 1000000] * 100 %}", "{% set x = dict.fromkeys(k) %}"},
           {"{% set a = 'x' * 1000000 %}{% set b = 'x' * 1000000 %}", "{{ a is sameas b }}{{ a.count == b.count }}"},
           {"{% set s = '1' * 1000000 %}", "{{ s | float }}"},
           {"{% set s = '1' * 1000000 %}", "{{ s | int }}"},
           {"{% set a = 3 ** 80000 %}", "{{ (a | round(-38000)) is odd }}"},
           {"{% set a = 3 ** 80000 %}", "{% set x = {a: 1}[a] %}"},
           {"{% set k = 'x' * 1000000 %}", "{% set x = [1][k] %}{% set x = [1] | map(attribute=k) | list %}"},
           {"{% set s = ('&' ~ 'a' * 31) * 30000 %}", "{% set x = (s | safe).unescape() %}"},
           {"{% set s = ('&' ~ 'a' * 31) * 30000 %}", "{% set x = (s | safe).striptags() %}"},
           {"{% set d = dict.fromkeys(range(9999) | map('string')) %}{% set s = '{9998}' * 999 %}",
            "{% set x = (s.replace('9', 'a') ~ '').format(aaa8=1, **d) %}"},
           {"{% set d = dict.fromkeys(range(4999)) %}{% set e = dict.fromkeys(range(4999) | map('string')) %}",
            "{% set x = dict(d, **e) | pprint %}"},
           {"{% set s = '%a' * 9000 %}", "{% set x = strftime_now(s) %}"},
           {"", "{% set x %}{{ 'y' * 1000000 }}{% endset %}"}}) {
    SCOPED_TRACE(step);
    const clock_t begin = clock();
    EXPECT_THAT(error(before + kLoop + step + kEnd), HasSubstr(": rendering takes more than 10000000 steps"));
    // Some tenths of a second on the machine where steps were counted; sanitizers and busy machines take longer.
    EXPECT_LT(static_cast<double>(clock() - begin) / CLOCKS_PER_SEC, 20);
  }
}

// What a body sets costs wherever it begins, though it may never be set.
TEST(ChatTemplateBoundsTest, NamesCost) {
  std::string unset;
  for (int i = 0; i < 20000; ++i) unset += fmt::format("{{% set a{} = 1 %}}", i);
  const clock_t begin = clock();
  EXPECT_THAT(error("{% for i in range(99999) %}{% continue %}" + unset + "{% endfor %}"), HasSubstr("10000000 steps"));
  EXPECT_THAT(error("{% macro f() %}{{ f() }}" + unset + "{% endmacro %}{{ f() }}"), HasSubstr("10000000 steps"));
  std::string scopes, ends;
  for (int i = 0; i < 50; ++i) scopes += "{% with %}", ends += "{% endwith %}";
  EXPECT_THAT(
      error(scopes +
            "{% for i in range(99999) %}{% for j in range(99999) %}{% if range and range and range %}{% endif %}"
            "{% endfor %}{% endfor %}" +
            ends),
      HasSubstr("10000000 steps"));
  EXPECT_LT(static_cast<double>(clock() - begin) / CLOCKS_PER_SEC, 60);
  EXPECT_EQ(error("{{ " + std::string(1001, 'a') + " }}"), "t, line 1: a name has 1001 bytes, want at most 1000");
  EXPECT_EQ(error("{{ [][" + ("'" + std::string(100000, 'a') + "'") + "].b }}"),
            "t, line 1: the attribute \"b\" is asked of \"" + std::string(100, 'a') + "...\", which is undefined");
  EXPECT_THAT(error("{{ [1] | map(attribute='1" + std::string(5000, '0') + "') | list }}"),
              HasSubstr("too many digits"));
}

// What is kept counts together, however small its parts are.
TEST(ChatTemplateBoundsTest, WhatIsKeptIsBounded) {
  const std::string kLoop = "{% set ns = namespace(l=[], x='') %}{% for i in range(99999) %}", kEnd = "{% endfor %}";
  const auto bounded =
      AnyOf(HasSubstr("the values of a rendering hold more than 268435456 bytes"),
            HasSubstr("rendering takes more than 10000000 steps"), HasSubstr("a value has more than 4000000 parts"));
  for (const auto& [before, step] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{% set s = 'a ' * 1000000 %}", "{% set ns.l = ns.l + [s.split()] %}"},
           {"", "{% set ns.l = ns.l + ['x' * 10000000] %}"},
           {"", "{% set ns.l = ns.l + [[1] * 1000000] %}"},
           {"{% set k = 'x' * 10000000 %}", "{% set ns.l = ns.l + [{k: 1}] %}"},
           {"{% set d = dict.fromkeys(range(10000) | map('string')) %}", "{% set ns.l = ns.l + [namespace(d)] %}"},
           {"", "{% set ns.x = ns.x ~ 'x' * 1000000 %}"}}) {
    SCOPED_TRACE(step);
    EXPECT_THAT(error(before + kLoop + step + kEnd), bounded);
  }
  EXPECT_THAT(error("{% set s = ',' * 60000000 %}{{ s.split(',') | length }}"), bounded);
  EXPECT_THAT(error("{{ ('x' * 60000000) | list | length }}"), bounded);
#ifndef MEGALITH_SANITIZE
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 1 << 20) << "kilobytes";
#endif
}

// What holds another that holds another is let go of without a call for each.
TEST(ChatTemplateBoundsTest, ChainsEnd) {
  const std::string kLoop = "{% set ns = namespace(g=[1]) %}{% for i in range(99999) %}", kEnd = "{% endfor %}";
  for (const char* step :
       {"{% set ns.g = namespace(g=ns.g) %}", "{% for x in [ns.g] %}{% set ns.g = loop %}{% endfor %}",
        "{% macro m() %}{{ ns.g }}{% endmacro %}{% set ns.g = m %}"})
    EXPECT_EQ(error(kLoop + step + kEnd), "") << step;
  for (const char* step :
       {"{% set ns.g = ns.g | map('string') %}", "{% set ns.g = cycler(ns.g) %}", "{% set ns.g = [ns.g.count] %}",
        "{% set ns.g = joiner(ns.g) %}", "{% set ns.g = {'a': ns.g} %}"})
    EXPECT_THAT(error(kLoop + step + kEnd), HasSubstr("nests deeper than 100 levels")) << step;
  EXPECT_THAT(error(kLoop + "{% set ns.g = namespace(g=ns.g) %}" + kEnd + "{{ ns }}"), HasSubstr("cannot be printed"));
  EXPECT_THAT(error("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"), HasSubstr("cannot be printed"));
}

TEST(ChatTemplateBoundsTest, RecursionEnds) {
  for (const char* source :
       {"{% macro f(x) %}{{ f([x] | map('string') | join | upper ~ (1 if x else 2)) }}{% endmacro %}{{ f(1) }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "{% macro f(a=f()) %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% set x %}{% if 1 %}{% with %}{{ f() }}{% endwith %}{% endif %}{% endset %}{% endmacro %}{{ "
        "f() }}",
        "{% macro f() %}{% for x in [1] if f() %}{% endfor %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% filter replace('a', f()) %}{% endfilter %}{% endmacro %}{{ f() }}"})
    EXPECT_THAT(error(source), HasSubstr("nests deeper than 600 levels: a macro")) << source;
  // As deep as transformers goes.
  EXPECT_EQ(error("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(190) }}"), "");
}

// Reading a template takes time in proportion to its length.
TEST(ChatTemplateBoundsTest, ParsingEnds) {
  std::string names, branches, loops;
  for (int i = 0; i < 20000; ++i) {
    names += fmt::format("{{% if a{0} %}}{{% set b{0} = 1 %}}{{% endif %}}", i);
    branches += fmt::format("{{% elif a{0} %}}{{% set b{0} = 1 %}}", i);
  }
  for (int i = 0; i < 58; ++i) loops += fmt::format("{{% for a{} in [] %}}", i);
  const clock_t begin = clock();
  EXPECT_EQ(error(names), "");
  EXPECT_EQ(error("{% if 0 %}" + branches + "{% endif %}"), "");
  EXPECT_EQ(error(loops + repeated("x{{ loop }}", 20000) + repeated("{% endfor %}", 58)), "");
  EXPECT_EQ(error("{% set x = [" + repeated("1,", 300000) + "] %}"), "");
  EXPECT_EQ(error("{{ dict(" + repeated("a=1,", 1) + ") }}{{ " + repeated("'a' ", 200000) + "}}"), "");
  EXPECT_THAT(error("{% raw %}" + repeated("{%", 400000)), HasSubstr("raw text begins that has no"));
  EXPECT_THAT(error("{# " + repeated("{#", 400000)), HasSubstr("a comment begins"));
  EXPECT_THAT(error("{{ 1" + repeated(" ~ 1", 200000) + " }}"), "");
  EXPECT_THAT(error("{{ " + repeated("9", 900000) + " }}"), HasSubstr("is too large"));
  EXPECT_EQ(error(repeated(" ", 900000) + "{{ 1 }}"), "");
  EXPECT_EQ(error(repeated(repeated(" ", 1000) + "{%- if 1 %}{% endif %}", 900)), "");
  EXPECT_LT(static_cast<double>(clock() - begin) / CLOCKS_PER_SEC, 30);
}

}  // namespace
}  // namespace megalith
