// Sampling and log-probabilities over rows of logits.
#pragma once
