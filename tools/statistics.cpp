#include "tools/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace megalith::tools {

double mean(const std::vector<double>& samples) {
  if (samples.empty()) return 0;
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double standard_deviation(const std::vector<double>& samples) {
  if (samples.size() < 2) return 0;
  const double middle = mean(samples);
  double squares = 0;
  for (double sample : samples) squares += (sample - middle) * (sample - middle);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

double percentile(std::vector<double> samples, double percent) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double at = percent / 100 * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (at - static_cast<double>(below)) * (samples[above] - samples[below]);
}

}  // namespace megalith::tools
