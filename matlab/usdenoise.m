function [iq, power, report] = usdenoise(IQ, varargin)
% USDENOISE  Clutter-filter an ultrafast-ultrasound Doppler stack.
%
%   iq = usdenoise(IQ, 'FrameRate', 500) removes tissue clutter from the stack IQ, a complex or real array of
%   depth x lateral x frames, or depth x lateral x elevation x frames. iq has the size and the precision of IQ;
%   integers become single.
%
%   [iq, power, report] = usdenoise(...) also returns the power Doppler image, the mean of abs(iq).^2 over the frames,
%   and a struct with the options, the cutoffs, the errors and the timings.
%
%   Options are pairs of a name and a value. They are those of "usdenoise run --help", without dashes and with a
%   capital letter for each word. A flag without a value takes true. Those that choose files and messages, such as
%   'Output' and 'NoStack', are for the command line only. For example:
%
%     'FrameRate', 500        frames per second
%     'LowCutoff', 12         components to remove, or 'auto' (the default)
%     'HighCutoff', 'rank'    also remove the noise
%     'Spacing', [0.05 0.1]   pixel pitch in mm, one number for each spatial axis
%     'BadFrames', 'keep'     exclude no frame; by default bad frames are replaced by the model, see report.bad_frames
%     'Method', 'svd'         the full SVD
%     'Estimator', {'precision=double'}   keys of --estimator
%     'Axes', 'zxt'           letters of the axes of IQ: z depth, x lateral, y elevation, t frames
%
%   One more option is not passed on: 'Command' is the program usdenoise, for example '/home/me/venv/bin/usdenoise', or
%   a command line that starts it. By default it is the environment variable USDENOISE_COMMAND, or "usdenoise".
%
%   The stack and the options are handed over in files in the temporary folder, which are removed at the end. A failure
%   of usdenoise becomes an error with its sentence.
%
%   Example
%     IQ = complex(randn(40, 30, 100), randn(40, 30, 100));
%     [iq, power, report] = usdenoise(IQ, 'FrameRate', 500, 'LowCutoff', 2);
%     imagesc(10 * log10(power)); title(sprintf('%d components removed', report.low_cutoff));
%
%   This file needs no toolbox. It is tested in GNU Octave, and not in MATLAB. It requires usdenoise installed for Python.

  if ~isnumeric(IQ) || ndims(IQ) < 3 || ndims(IQ) > 4
    error('usdenoise:input', ['IQ must be a numeric array of depth x lateral x frames, or depth x lateral x ', ...
          'elevation x frames; permute or reshape it']);
  end
  if mod(numel(varargin), 2) ~= 0 || ~all(cellfun(@ischar, varargin(1:2:end)))
    error('usdenoise:options', 'options are pairs of a name and a value, such as ''FrameRate'', 500; complete the pairs');
  end
  [command, study, lines] = settings(ndims(IQ), varargin);

  folder = tempname();
  mkdir(folder);
  cleaner = onCleanup(@() remove(folder));
  stack = fullfile(folder, 'stack.mat');
  information = whos('IQ');
  if information.bytes < 2^31 - 2^20
    save(stack, 'IQ', '-v7');
  elseif exist('OCTAVE_VERSION', 'builtin')
    error('usdenoise:size', 'Octave cannot write a MATLAB file of 2 GB or more; filter fewer frames at a time');
  else
    save(stack, 'IQ', '-v7.3');
  end

  % The values of the options are no part of the command line: a shell would take some characters apart.
  options = fullfile(folder, 'options.toml');
  write(options, lines);
  line = sprintf('%s run %s -o %s -q%s --config %s', command, quoted(stack), quoted(folder), study, quoted(options));
  if ispc()
    % cmd removes quotes at the beginning of a line.
    line = ['2>&1 ', line];
  else
    line = [line, ' 2>&1'];
  end
  [status, said] = system(line);
  written = fullfile(folder, 'stack_denoised.mat');
  if status ~= 0 || ~exist(written, 'file')
    error('usdenoise:failed', '%s', strrep(sentence(said, command), [options, ' has'], 'the call has'));
  end
  result = load(written, 'IQ', 'power_doppler');
  iq = result.IQ;
  power = result.power_doppler;
  report = jsondecode(fileread(fullfile(folder, 'stack_report.json')));
end

function [command, study, lines] = settings(n_axes, options)
  % The command, the flag of a configuration file of the user, and the options as lines of TOML.
  axes_of = {'zxt', 'zxyt'};
  values = struct('axes', axes_of{n_axes - 2});
  command = getenv('USDENOISE_COMMAND');
  if isempty(command)
    command = 'usdenoise';
  end
  study = '';
  for place = 1:2:numel(options)
    name = options{place};
    value = options{place + 1};
    switch key(name)
      case 'command'
        command = value;
      case 'config'
        study = [' --config ', quoted(value)];
      case {'output', 'as', 'overwrite', 'nifti', 'bids', 'no_stack', 'json', 'quiet', ...
            'verbose', 'help'}
        error('usdenoise:options', ['''%s'' chooses files or messages, and this function returns arrays; omit it, ', ...
              'or start usdenoise run in a terminal'], name);
      otherwise
        values.(key(name)) = plain(name, value);
    end
  end
  if exist(command, 'file') == 2
    command = quoted(command);
  end
  lines = cellfun(@(name) sprintf('%s = %s\n', name, toml(values.(name))), fieldnames(values), 'UniformOutput', false);
end

function name = key(name)
  % LowCutoff becomes low_cutoff, FrameRate frame_rate.
  word = strrep(lower(regexprep(name, '(?<=[a-z0-9])([A-Z])', '_$1')), '-', '_');
  if isempty(regexp(word, '^[a-z][a-z0-9_]*$', 'once'))
    error('usdenoise:options', '''%s'' is not the name of an option; see "usdenoise run --help"', name);
  end
  name = word;
end

function value = plain(name, value)
  % Numbers become text with commas.
  if isnumeric(value) && isreal(value) && ~isempty(value)
    value = sprintf('%.15g,', value);
    value = value(1:end - 1);
  elseif ~(ischar(value) && size(value, 1) <= 1) && ~(islogical(value) && isscalar(value)) && (isempty(value) || ~iscellstr(value))
    error('usdenoise:options', 'the value of ''%s'' must be text, real numbers, true or false', name);
  end
end

function text = toml(value)
  if iscell(value)
    items = cellfun(@toml, value, 'UniformOutput', false);
    text = ['[', strjoin(items(:)', ', '), ']'];
    return
  end
  if islogical(value)
    words = {'false', 'true'};
    text = words{value + 1};
    return
  end
  text = strrep(strrep(value, '\', '\\'), '"', '\"');
  for code = [0:31, 127]
    text = strrep(text, char(code), sprintf('\\u%04X', code));
  end
  text = ['"', text, '"'];
end

function write(place, lines)
  file = fopen(place, 'w');
  fwrite(file, unicode2native([lines{:}], 'UTF-8'));
  fclose(file);
end

function text = quoted(text)
  % One word of a command line. The rules of cmd: the program takes backslashes before a quote in pairs, and between
  % quotes a % would name a variable. The rule of other shells: only ' has a meaning in single quotes.
  if ispc()
    text = regexprep(text, '(\\+)(?=%|$)', '$1$1');
    text = ['"', strrep(text, '%', '"^%"'), '"'];
  else
    text = ['''', strrep(text, '''', '''\'''''), ''''];
  end
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
