function [iq, power, report] = usdenoise(IQ, varargin)
% USDENOISE  Clutter-filter an ultrafast-ultrasound Doppler stack.
%
%   iq = usdenoise(IQ, 'FrameRate', 500) removes tissue clutter from the stack IQ, a complex or real array of
%   depth x lateral x frames, or depth x lateral x elevation x frames. iq has the size and the precision of IQ.
%
%   [iq, power, report] = usdenoise(...) also returns the power Doppler image, the mean of abs(iq).^2 over the frames,
%   and a struct with the options, the cutoffs, the errors and the timings.
%
%   Options are pairs of a name and a value. They are those of "usdenoise run --help", without dashes and with a
%   capital letter for each word. A flag without a value takes true. For example:
%
%     'FrameRate', 500        frames per second
%     'LowCutoff', 12         components to remove, or 'auto' (the default)
%     'HighCutoff', 'rank'    also remove the noise
%     'Spacing', [0.05 0.1]   pixel pitch in mm, one number for each spatial axis
%     'Axes', 'zxt'           letters of the axes of IQ: z depth, x lateral, y elevation, t frames
%
%   One more option is not passed on: 'Command' is the command that starts usdenoise, for example
%   '/home/me/venv/bin/usdenoise'. By default it is the environment variable USDENOISE_COMMAND, or "usdenoise".
%
%   The stack is handed over in a file in the temporary folder, which is removed at the end. A failure of usdenoise
%   becomes an error with its sentence.
%
%   Example
%     IQ = complex(randn(40, 30, 100), randn(40, 30, 100));
%     [iq, power, report] = usdenoise(IQ, 'FrameRate', 500, 'LowCutoff', 2);
%     imagesc(10 * log10(power)); title(sprintf('%d components removed', report.low_cutoff));
%
%   This file works in MATLAB and in GNU Octave, without toolboxes. It needs usdenoise installed for Python.

  if ~isnumeric(IQ) || ndims(IQ) < 3 || ndims(IQ) > 4
    error('usdenoise:input', ['IQ must be a numeric array of depth x lateral x frames, or depth x lateral x ', ...
          'elevation x frames; permute or reshape it']);
  end
  if mod(numel(varargin), 2) ~= 0 || ~all(cellfun(@ischar, varargin(1:2:end)))
    error('usdenoise:options', 'options are pairs of a name and a value, such as ''FrameRate'', 500; complete the pairs');
  end
  [command, words] = command_line(ndims(IQ), varargin);

  folder = tempname();
  mkdir(folder);
  cleaner = onCleanup(@() remove(folder));
  stack = fullfile(folder, 'stack.mat');
  information = whos('IQ');
  if information.bytes < 2^31 - 2^20
    save(stack, 'IQ', '-v7');
  elseif exist('OCTAVE_VERSION', 'builtin')
    error('usdenoise:size', 'Octave writes no MATLAB file of 2 GB or more; filter fewer frames at a time');
  else
    save(stack, 'IQ', '-v7.3');
  end

  line = sprintf('%s run %s -o %s -q%s 2>&1', command, quoted(stack), quoted(folder), words);
  [status, said] = system(line);
  if status ~= 0
    error('usdenoise:failed', '%s', sentence(said, command));
  end
  result = load(fullfile(folder, 'stack_denoised.mat'), 'IQ', 'power_doppler');
  iq = result.IQ;
  power = result.power_doppler;
  report = jsondecode(fileread(fullfile(folder, 'stack_report.json')));
end

function [command, words] = command_line(n_axes, options)
  command = getenv('USDENOISE_COMMAND');
  if isempty(command)
    command = 'usdenoise';
  end
  words = '';
  has_axes = false;
  for place = 1:2:numel(options)
    name = options{place};
    value = options{place + 1};
    if strcmpi(name, 'Command')
      command = value;
      continue
    end
    has_axes = has_axes || strcmpi(name, 'Axes');
    words = [words, ' ', flag(name), argument(name, value)]; %#ok<AGROW>
  end
  if ~has_axes
    axes_of = {'zxt', 'zxyt'};
    words = [words, ' --axes ', axes_of{n_axes - 2}];
  end
end

function word = flag(name)
  % LowCutoff becomes --low-cutoff, DbFactor --db-factor.
  word = ['--', lower(regexprep(name, '(?<=[a-z0-9])([A-Z])', '-$1'))];
  if isempty(regexp(word, '^--[a-z0-9-]+$', 'once'))
    error('usdenoise:options', '''%s'' is no name of an option; see "usdenoise run --help"', name);
  end
end

function words = argument(name, value)
  if islogical(value) && isscalar(value) && value
    words = '';
  elseif ischar(value)
    words = [' ', quoted(value)];
  elseif isnumeric(value) && isreal(value) && ~isempty(value)
    numbers = sprintf('%.15g,', value);
    words = [' ', numbers(1:end - 1)];
  else
    error('usdenoise:options', 'the value of ''%s'' must be text, real numbers or true; leave the option out otherwise', name);
  end
end

function text = quoted(text)
  if any(text == '"') || any(text == '$') || any(text == '`') || any(text == newline())
    error('usdenoise:options', '%s has a character that a command line takes apart; choose another name', text);
  end
  text = ['"', text, '"'];
end

function text = sentence(said, command)
  lines = strsplit(strtrim(said), sprintf('\n'));
  found = regexp(lines, '^(?:usdenoise|Error): (.*)$', 'tokens', 'once');
  found = found(~cellfun(@isempty, found));
  if isempty(found)
    text = sprintf('%s did not run (%s); give its full path as ''Command''', command, lines{end});
  else
    text = found{end}{1};
  end
end

function remove(folder)
  if exist('OCTAVE_VERSION', 'builtin')
    confirm_recursive_rmdir(false, 'local');
  end
  if exist(folder, 'dir')
    rmdir(folder, 's');
  end
end
